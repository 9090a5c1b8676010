/* A call whose frame is about to run, either the interpreter's own or that of a continuation. */
#ifndef FUSEWRIGHT_PENDING_CALL_H
#define FUSEWRIGHT_PENDING_CALL_H

#include "continuation.h"

typedef struct {
    PyFunctionObject *function; /* borrowed from what holds the arguments */
    PyCodeObject *code;
    PyObject *
        *locals; /* the arguments, one for each parameter, in the order of the code's locals */
    Continuation *continuation; /* what holds the arguments, owned; NULL: a frame does */
} PendingCall;

static inline PendingCall pending_call_of_frame(InterpreterFrame *frame)
{
    return (PendingCall){frame_function(frame), frame_code(frame), frame->localsplus, NULL};
}

/* Takes the reference over. */
static inline PendingCall pending_call_of_continuation(Continuation *continuation)
{
    PyFunctionObject *function = continuation->function;
    PyObject **locals = ((PyTupleObject *)continuation->arguments)->ob_item;
    return (PendingCall){function, (PyCodeObject *)function->func_code, locals, continuation};
}

#endif
