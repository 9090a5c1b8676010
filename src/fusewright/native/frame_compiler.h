/* FrameCompiler: a compile callback with the entries that it has made, by code object. */
#ifndef FUSEWRIGHT_FRAME_COMPILER_H
#define FUSEWRIGHT_FRAME_COMPILER_H

#include "owners.h"

typedef struct CodeRecord CodeRecord;

typedef struct {
    PyObject_HEAD
    PyObject *callback;
    PyObject *on_limit;           /* None: nothing is told */
    Py_ssize_t recompile_limit;   /* entries of one owner of one code object */
    Py_ssize_t accumulated_limit; /* entries of all */
    Py_ssize_t entry_count;
    bool told_accumulated; /* that the second was reached */
    CodeRecord *records;   /* one for each code object met */
    PyObject *weak_references;
} FrameCompiler;

/* What a frame compiler knows of a code object. Reached in two ways: from its compiler, which owns
   it, and from the code object's extra slot, which makes the hook's look-up short. */
struct CodeRecord {
    FrameCompiler *compiler; /* borrowed */
    PyCodeObject *code;      /* owned, so that the slot outlives no record */
    CodeRecord *next_of_compiler;
    CodeRecord *next_of_code;
    bool closed; /* ask the callback no more */
    int refusals; /* how often in a row it wanted none of the calls */
    int waits;    /* calls that run as they are before it is asked again */
    int unchecked; /* calls from outside that run as they are before guards are checked again */
    int unchecked_next; /* how many that will be the next time */
    Py_ssize_t wasted_count; /* entries that died before they served another call */
    Py_ssize_t entry_count;
    Entry **entries; /* owned */
    Owners owners;
};

extern PyTypeObject FrameCompiler_Type;

/* Prepare the code objects' extra slot; adds the type `Frame` to the module. */
int frame_compiler_setup(PyObject *module);

/* The record of `code` under `compiler`, borrowed; NULL when there is none, without an exception.
 */
CodeRecord *frame_compiler_find(FrameCompiler *compiler, PyCodeObject *code);

/* The entry of the record whose guards hold, a new reference, moved to the front; NULL when there
   is none. Those of the call's owner are asked first. */
Entry *frame_compiler_find_entry(FrameCompiler *compiler, const PendingCall *call,
                                 CodeRecord *record);

/* Whether the callback is not to be asked about the next call of the record's code. Counts that
   call. */
bool frame_compiler_declines(CodeRecord *record);

/* Whether the next call of the record's code from outside runs as it is written without a check of
   guards. Counts that call. */
bool frame_compiler_is_unchecked(CodeRecord *record);

/* Told that a call from outside ran as it is written, since that is faster. */
void frame_compiler_ran_written(FrameCompiler *compiler, PyCodeObject *code);

/* Ask the callback about a call and keep its answer. A new reference to the entry to run; NULL to
   run the call as it is, or with an exception. */
Entry *frame_compiler_compile(FrameCompiler *compiler, const PendingCall *call);

/* `run_only(function, args, kwargs)`: see the docstring in module.c. */
PyObject *frame_compiler_run_only(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
