/* Continuation: what compiled code returns when the call is not over but goes on in another
 * function. */
#ifndef FUSEWRIGHT_CONTINUATION_H
#define FUSEWRIGHT_CONTINUATION_H

#include "interpreter_frame.h"

typedef struct {
    PyObject_HEAD
    PyFunctionObject *function; /* where the call goes on */
    PyObject *arguments;        /* tuple: one for each parameter, in the order of its locals */
    PyObject *entry;            /* an Entry that runs it; NULL: one is looked up */
} Continuation;

extern PyTypeObject Continuation_Type;

#endif
