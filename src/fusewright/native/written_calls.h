/* Calls that run as they are written: when to ask about one, or to check guards, again. */
#ifndef FUSEWRIGHT_WRITTEN_CALLS_H
#define FUSEWRIGHT_WRITTEN_CALLS_H

#include "code_records.h"

/* Told that the callback wanted nothing of one call of the record's code. */
void written_calls_refuse(CodeRecord *record);

/* Whether the callback is not to be asked about the next call of the record's code. Counts that
   call. */
bool written_calls_decline(CodeRecord *record);

/* Whether the next call of the record's code from outside runs as it is written without a check of
   guards. Counts that call. */
bool written_calls_are_unchecked(CodeRecord *record);

/* Told that a call from outside ran as it is written, since that is faster. */
void written_calls_ran(CodeRecords *records, PyCodeObject *code);

#endif
