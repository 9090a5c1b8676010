/* Launches kernels on a GPU, through functions of its driver. */
#ifndef FUSEWRIGHT_GPU_KERNEL_H
#define FUSEWRIGHT_GPU_KERNEL_H

#include "tensor_access.h"

extern PyTypeObject GpuKernel_Type;

/* Whether `object` is a GpuKernel for so many tensors and numbers. */
bool gpu_kernel_takes(PyObject *object, Py_ssize_t tensors, Py_ssize_t numbers);

enum { GPU_KERNEL_LAUNCHED, GPU_KERNEL_HAS_NO_CODE };

/* Launch a GpuKernel on the tensors of these handles and on numbers, each an integer or the 64 bits
   of a double. One of the two above, of which the second has done nothing; or -1 with an exception.
 */
int gpu_kernel_launch(PyObject *kernel, const TensorHandle *tensors, const int64_t *numbers,
                      int64_t programs);

/* Do what a GpuKernel without machine code does. -1 with an exception. */
int gpu_kernel_run_eagerly(PyObject *kernel, PyObject *const *tensors, const int64_t *numbers,
                           int64_t programs);

#endif
