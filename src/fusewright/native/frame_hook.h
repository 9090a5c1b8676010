/* The frame hook: runs compiled code in place of frames, through the evaluation function of PEP
   523. */
#ifndef FUSEWRIGHT_FRAME_HOOK_H
#define FUSEWRIGHT_FRAME_HOOK_H

#include "frame_compiler.h"

/* A callable that runs another with the hook off on its thread. */
extern PyTypeObject Disabled_Type;

/* `function(*args, **keywords)` with `compiler` active on this thread. `keywords` may be NULL. */
PyObject *frame_hook_call(FrameCompiler *compiler, PyObject *function, PyObject *args,
                          PyObject *keywords);

/* The same with arguments as PyObject_Vectorcall takes them. */
PyObject *frame_hook_vectorcall(FrameCompiler *compiler, PyObject *function, PyObject *const *args,
                                size_t flags, PyObject *names);

/* `is_installed()`: whether the interpreter evaluates frames through the hook now. */
PyObject *frame_hook_is_installed(PyObject *module, PyObject *ignored);

#endif
