/* Tells profilers what runs, where one looks. */
#ifndef FUSEWRIGHT_PROFILING_H
#define FUSEWRIGHT_PROFILING_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "torch_library.h"

/* A Python function that is called with a file, a line and the kernel or NULL; it gives what is told
   of the end, or None. NULL: nobody is told of anything. */
extern PyObject *profiling_begin_function;

/* Whether it is called though torch's profiler is off. */
extern bool profiling_is_forced;

static inline bool profiling_is_on(void)
{
    return profiling_begin_function != NULL &&
           (profiling_is_forced ||
            (torch_library.has_callbacks != NULL && torch_library.has_callbacks()));
}

/* Something begins: a line of a generated module (`file` may be NULL), or a kernel by itself. What
   to give to `profiling_end`, or NULL; no exception is set. */
PyObject *profiling_begin(PyObject *file, int64_t line, PyObject *kernel);

/* It ended, perhaps with an exception, which stays. `guard` may be NULL. */
void profiling_end(PyObject *guard);

PyObject *profiling_set(PyObject *module, PyObject *args);

#endif
