/* Launches generated machine code on tensors, over torch's own OpenMP threads. */
#ifndef FUSEWRIGHT_CPU_KERNEL_H
#define FUSEWRIGHT_CPU_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject CpuKernel_Type;

#endif
