/* Entries: a compiled function with the guards under which it stands for a frame. */
#ifndef FUSEWRIGHT_ENTRY_H
#define FUSEWRIGHT_ENTRY_H

#include "guard_program.h"
#include "interpreter_frame.h"

typedef struct {
    PyObject_HEAD
    PyFunctionObject *function; /* as given */
    PyFunctionObject *flat; /* its parameters all positional, in the order of the frame's locals */
    GuardProgram *guards;   /* NULL: holds always */
    PyObject *detail;       /* what Python keeps beside the entry; None by default */
    int *guarded_locals;    /* for each local that the guards name, its index in the frame */
} Entry;

extern PyTypeObject Entry_Type;

/* Whether the entry's guards hold for a fresh frame. Never raises. */
bool entry_holds(Entry *entry, InterpreterFrame *frame);

/* Whether an object that the guards hold weakly is gone, so that they can never hold again. */
bool entry_is_dead(Entry *entry);

/* Call the entry's function on the frame's arguments. A new reference, or NULL with an exception
   set. */
PyObject *entry_run(Entry *entry, InterpreterFrame *frame);

#endif
