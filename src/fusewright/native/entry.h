/* Entries: a compiled function with the guards under which it stands for a frame. */
#ifndef FUSEWRIGHT_ENTRY_H
#define FUSEWRIGHT_ENTRY_H

#include "call_trial.h"
#include "guard_program.h"
#include "pending_call.h"

typedef struct {
    PyObject_HEAD
    PyFunctionObject *function; /* as given */
    PyFunctionObject *flat; /* its parameters all positional, in the order of the frame's locals */
    GuardProgram *guards;   /* NULL: holds always */
    PyObject *detail;       /* what Python keeps beside the entry; None by default */
    PyObject *on_return;    /* called when the function has returned; NULL: nothing is */
    char continues;         /* whether frames called by the function are looked up, too */
    bool served;            /* whether it was found for a call, not only made for one */
    int passed_over;        /* checked calls since its own last one that ran as written */
    Py_ssize_t owner_count; /* owners that it has served: see owners.h */
    CallTrial *trial;       /* whether calls run as they are written instead; NULL: never */
    int *guarded_locals;    /* for each local that the guards name, its index in the frame */
} Entry;

extern PyTypeObject Entry_Type;

/* Whether the entry's guards hold for a call. Never raises. */
bool entry_holds(Entry *entry, const PendingCall *call);

/* Whether the entry can run in place of a call of `code`: it runs on the frame's locals and closure
   as they stand, which must agree in number. */
bool entry_fits(const Entry *entry, PyCodeObject *code);

/* Whether an object that the guards hold weakly is gone, so that they can never hold again. */
bool entry_is_dead(Entry *entry);

/* The function that stands for the call, to be called on its locals as they are: the entry's, under
   the call's own closure and globals. A new reference, or NULL with an exception set. */
PyFunctionObject *entry_function(Entry *entry, const PendingCall *call);

#endif
