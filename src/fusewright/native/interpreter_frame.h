/* CPython's interpreter frames: the fields that the hook reads, and the duties of whoever evaluates
   one, by version. This is the one place that includes CPython's internal headers. */
#ifndef FUSEWRIGHT_INTERPRETER_FRAME_H
#define FUSEWRIGHT_INTERPRETER_FRAME_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#define Py_BUILD_CORE
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#undef Py_BUILD_CORE

#if PY_VERSION_HEX < 0x030C0000
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra
#endif

typedef struct _PyInterpreterFrame InterpreterFrame;

/* Where an object keeps the pointer to its `__dict__`, which must have been asked for before: until
   then 3.12 may keep its attributes there. NULL where there is none, or (3.13) not to be relied on:
   the dictionary and the object may share their values. */
static inline PyObject **instance_dict_address(PyObject *object)
{
#if 0x030C0000 <= PY_VERSION_HEX && PY_VERSION_HEX < 0x030D0000
    if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
        return (PyObject **)object - 3; /* in front of the object and of the collector's header */
    }
#endif
    return _PyObject_GetDictPtr(object);
}

static inline PyCodeObject *frame_code(InterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

/* The function that the frame is a call of. Borrowed. */
static inline PyFunctionObject *frame_function(InterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return (PyFunctionObject *)frame->f_funcobj;
#else
    return frame->f_func;
#endif
}

/* Whether no instruction of the frame has run: its locals are its arguments. */
static inline bool frame_is_fresh(InterpreterFrame *frame)
{
    const _Py_CODEUNIT *start = _PyCode_CODE(frame_code(frame));
#if PY_VERSION_HEX >= 0x030D0000
    bool at_start = frame->instr_ptr == start;
#else
    bool at_start = frame->prev_instr == start - 1;
#endif
    return at_start && frame->owner == FRAME_OWNED_BY_THREAD && frame->frame_obj == NULL;
}

/* Whether the frame is an ordinary function call: not a module, a class body, a generator or a
   coroutine. */
static inline bool frame_is_plain_call(InterpreterFrame *frame)
{
    const int wanted = CO_OPTIMIZED | CO_NEWLOCALS;
    const int refused = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    return (frame_code(frame)->co_flags & (wanted | refused)) == wanted && frame_is_fresh(frame);
}

/* How many locals are parameters; they come first, in the order positional, keyword-only, *args,
 **keywords. */
static inline int code_parameter_count(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) +
           !!(code->co_flags & CO_VARKEYWORDS);
}

/* End a fresh frame that will not be evaluated. Up to 3.11 the evaluator's caller clears and pops
   the frame; from 3.12 on that is the evaluator's duty. */
void frame_release(PyThreadState *thread, InterpreterFrame *frame);

#endif
