/* Records: what a frame compiler knows of code objects, its entries and the owners of their calls.
 */
#ifndef FUSEWRIGHT_CODE_RECORDS_H
#define FUSEWRIGHT_CODE_RECORDS_H

#include "owners.h"

typedef struct CodeRecord CodeRecord;

/* The records of one frame compiler, which stays where it is while there are any. */
typedef struct {
    CodeRecord *first;
    Py_ssize_t entry_count; /* of all records */
} CodeRecords;

/* What a frame compiler knows of a code object. Reached in two ways: from its compiler, which owns
   it, and from the code object's extra slot, which makes the hook's look-up short. */
struct CodeRecord {
    CodeRecords *records; /* borrowed */
    PyCodeObject *code;   /* owned, so that the slot outlives no record */
    CodeRecord *next;     /* of the same frame compiler */
    CodeRecord *next_of_code;
    bool closed;   /* ask the callback no more */
    int refusals;  /* how often in a row it wanted none of the calls */
    int waits;     /* calls that run as they are before it is asked again */
    int unchecked; /* calls from outside that run as they are before guards are checked again */
    int unchecked_next;      /* how many that will be the next time */
    Py_ssize_t wasted_count; /* entries that died before they served another call */
    Py_ssize_t entry_count;
    Entry **entries; /* owned; last used first */
    Owners owners;
};

/* Prepare the code objects' extra slot, once a process: records must stay where they were put. -1
   with an exception. */
int code_records_prepare(void);

/* The record of `code`, borrowed; NULL when there is none, without an exception. */
CodeRecord *code_records_find(CodeRecords *records, PyCodeObject *code);

/* A new record of `code`, which has none. NULL with an exception. */
CodeRecord *code_records_add(CodeRecords *records, PyCodeObject *code);

/* Add an entry to those of a record, in front, unless it is among them. -1 with an exception. */
int code_record_add_entry(CodeRecord *record, Entry *entry);

/* The owner of that key among those of a code; NULL when there is none, without an exception. */
Owner *code_records_find_owner(CodeRecords *records, PyCodeObject *code, const OwnerKey *key);

/* The same, made, as is the record, when there is none. This may run any code. NULL with an
   exception. */
Owner *code_records_add_owner(CodeRecords *records, PyCodeObject *code, const OwnerKey *key);

/* Drop the entries of `code`, or of every code where it is NULL, that can never hold again, and of
   those whose owners are all gone all but `most_left_behind`. This may run any code, which may
   change the records. -1 with an exception. */
int code_records_drop_dead(CodeRecords *records, PyCodeObject *code, Py_ssize_t most_left_behind);

/* Forget all records. */
void code_records_clear(CodeRecords *records);

#endif
