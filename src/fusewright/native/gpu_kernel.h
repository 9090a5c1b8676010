/* Launches kernels on a GPU, through functions of its driver. */
#ifndef FUSEWRIGHT_GPU_KERNEL_H
#define FUSEWRIGHT_GPU_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject GpuKernel_Type;

#endif
