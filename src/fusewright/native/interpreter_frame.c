/* Ends interpreter frames that the hook answered for in place of the default evaluator. */
#include "interpreter_frame.h"

#if PY_VERSION_HEX >= 0x030C0000

/* Drop what a fresh frame owns, in the order in which the default evaluator does. No frame object
   exists yet. */
static void clear_frame(InterpreterFrame *frame)
{
    int count = frame->stacktop;
    frame->stacktop = 0;
    for (int i = 0; i < count; i++) {
        Py_XDECREF(frame->localsplus[i]);
    }
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(frame_code(frame));
}

#if PY_VERSION_HEX >= 0x030D0000

#define pop_frame _PyThreadState_PopFrame

#else

/* Give the frame's room on the thread's data stack back. The first frame of a chunk takes the chunk
   with it; CPython 3.12 does not export its own function for that, and chunks come from the arena
   allocator. */
static void pop_frame(PyThreadState *thread, InterpreterFrame *frame)
{
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = thread->datastack_chunk;
    if (base != &chunk->data[0]) {
        thread->datastack_top = base;
        return;
    }
    _PyStackChunk *previous = chunk->previous;
    thread->datastack_top = &previous->data[previous->top];
    thread->datastack_chunk = previous;
    thread->datastack_limit = (PyObject **)((char *)previous + previous->size);
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
}

#endif

void frame_release(PyThreadState *thread, InterpreterFrame *frame)
{
    clear_frame(frame);
    pop_frame(thread, frame);
}

#else

void frame_release(PyThreadState *Py_UNUSED(thread), InterpreterFrame *Py_UNUSED(frame))
{
}

#endif
