/* Launches generated machine code on tensors, over torch's own OpenMP threads. */
#ifndef FUSEWRIGHT_CPU_KERNEL_H
#define FUSEWRIGHT_CPU_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "standalone/kernel_launch.h"

extern PyTypeObject CpuKernel_Type;

/* Whether `object` is a CpuKernel for so many tensors and numbers. */
bool cpu_kernel_takes(PyObject *object, Py_ssize_t tensors, Py_ssize_t numbers);

/* Run a CpuKernel; `arguments` holds what it takes. -1 with an exception. */
int cpu_kernel_launch(PyObject *kernel, void **arguments, int64_t units, int64_t grain);

/* A Python number as a kernel takes it: a size, or the 64 bits of a float. -1 with an exception. */
int cpu_kernel_number(PyObject *number, int64_t *slot);

/* -1, with the exception for a tensor argument that has no memory. */
int cpu_kernel_refuse(PyObject *kernel, Py_ssize_t position);

#endif
