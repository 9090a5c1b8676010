/* FrameCompiler: a compile callback with the entries that it has made, by code object. */
#ifndef FUSEWRIGHT_FRAME_COMPILER_H
#define FUSEWRIGHT_FRAME_COMPILER_H

#include "code_records.h"

typedef struct {
    PyObject_HEAD
    PyObject *callback;
    PyObject *on_limit;           /* None: nothing is told */
    Py_ssize_t recompile_limit;   /* entries of one owner of one code object */
    Py_ssize_t accumulated_limit; /* entries of all */
    bool told_accumulated;        /* that the second was reached */
    CodeRecords records;          /* of the code objects met */
    PyObject *weak_references;
} FrameCompiler;

extern PyTypeObject FrameCompiler_Type;

/* Prepare the records; adds the type `Frame` to the module. */
int frame_compiler_setup(PyObject *module);

/* Ask the callback about a call and keep its answer. A new reference to the entry to run; NULL to
   run the call as it is, or with an exception. */
Entry *frame_compiler_compile(FrameCompiler *compiler, const PendingCall *call);

/* `run_only(function, args, kwargs)`: see the docstring in module.c. */
PyObject *frame_compiler_run_only(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
