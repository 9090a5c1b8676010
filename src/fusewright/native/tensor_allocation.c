/* Makes CPU tensors through libtorch's C functions. */
#include "tensor_allocation.h"

/* More dimensions than this are refused; torch itself refuses more in most of its operators. */
#define MAXIMUM_DIMENSIONS 64

/* Copy a tuple of `dim` ints. -1 with an exception. */
static int take_extents(int64_t *extents, PyObject *tuple, Py_ssize_t dim)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != dim) {
        PyErr_SetString(PyExc_ValueError, "sizes and strides must be tuples of as many ints");
        return -1;
    }
    for (Py_ssize_t i = 0; i < dim; i++) {
        extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (extents[i] < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "sizes and strides must be at least 0");
            }
            return -1;
        }
    }
    return 0;
}

PyObject *tensor_allocate_cpu(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "empty_strided_cpu takes sizes, strides and a dtype");
        return NULL;
    }
    if (torch_library.wrap_tensor == NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "this torch cannot be asked for tensor objects");
        return NULL;
    }
    int64_t sizes[MAXIMUM_DIMENSIONS], strides[MAXIMUM_DIMENSIONS];
    Py_ssize_t dim = PyTuple_GET_SIZE(args[0]);
    if (dim > MAXIMUM_DIMENSIONS) {
        return PyErr_Format(PyExc_ValueError, "at most %d dimensions", MAXIMUM_DIMENSIONS);
    }
    int32_t dtype = (int32_t)PyLong_AsLong(args[2]);
    if (take_extents(sizes, args[0], dim) < 0 || take_extents(strides, args[1], dim) < 0 ||
        (dtype == -1 && PyErr_Occurred())) {
        return NULL;
    }
    TensorHandle handle;
    if (torch_library.empty_strided(dim, sizes, strides, dtype, torch_library.cpu_device_type, -1,
                                    &handle) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "torch could not allocate a tensor of these sizes");
        return NULL;
    }
    PyObject *tensor = torch_library.wrap_tensor(handle);
    torch_library.delete_tensor(handle);
    return tensor;
}
