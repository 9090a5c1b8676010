/* Makes CPU tensors without the argument parsing of torch's Python functions. */
#ifndef FUSEWRIGHT_TENSOR_ALLOCATION_H
#define FUSEWRIGHT_TENSOR_ALLOCATION_H

#include "torch_library.h"

/* `empty_strided_cpu(sizes, strides, dtype)`: see its docstring in module.c. */
PyObject *tensor_allocate_cpu(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
