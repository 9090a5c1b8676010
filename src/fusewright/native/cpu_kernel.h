/* Launches generated machine code on tensors, over torch's own OpenMP threads. */
#ifndef FUSEWRIGHT_CPU_KERNEL_H
#define FUSEWRIGHT_CPU_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* A kernel's machine code: does the units of work from `begin` to `end`; `arguments` holds the
   tensors' data pointers, then the sizes. Returns the code of a fault, or 0. */
typedef int64_t (*KernelFunction)(void **arguments, int64_t begin, int64_t end);

extern PyTypeObject CpuKernel_Type;

#endif
