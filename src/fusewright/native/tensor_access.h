/* Reads a tensor object's metadata without calling Python. */
#ifndef FUSEWRIGHT_TENSOR_ACCESS_H
#define FUSEWRIGHT_TENSOR_ACCESS_H

#include "torch_library.h"

/* What is known of tensor objects, found by probing real ones. */
typedef struct {
    PyTypeObject *tensor_type;    /* torch.Tensor */
    PyTypeObject *parameter_type; /* torch.nn.Parameter */
    Py_ssize_t
        handle_offset; /* where a tensor object keeps its handle; 0 before torch is attached */
    Py_ssize_t
        key_set_offset;   /* where the implementation keeps its dispatch key set; -1: not found */
    PyObject *key_set_of; /* a Python function from a tensor to its key set, for that case */
    getter requires_grad; /* the C function behind `tensor.requires_grad` */
    void *requires_grad_closure;
} TensorAccess;

extern TensorAccess tensor_access;

/* `attach_torch(path, tensor_type, parameter_type, samples, key_set_of)`: see the docstring in
   module.c. */
PyObject *tensor_access_attach(PyObject *module, PyObject *args);

/* `first_elsewhere(inputs, addresses)`: see the docstring in module.c. */
PyObject *tensor_access_first_elsewhere(PyObject *module, PyObject *args);

/* `size_of(tensor, dimension)`, `stride_of(tensor, dimension)`: see module.c. */
PyObject *tensor_access_size(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *tensor_access_stride(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* Sizes or strides as a new tuple; NULL with an exception. */
PyObject *tensor_access_extents(const int64_t *extents, int64_t count);

/* The key set as Python gives it; 0, which no tensor has, when it raises. */
uint64_t tensor_access_ask_key_set(PyObject *tensor);

static inline bool tensor_access_is_tensor(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    return type == tensor_access.tensor_type || type == tensor_access.parameter_type ||
           (tensor_access.tensor_type != NULL && PyType_IsSubtype(type, tensor_access.tensor_type));
}

/* The handle of a tensor object; the object must be a tensor. */
static inline TensorHandle tensor_access_handle(PyObject *tensor)
{
    return (char *)tensor + tensor_access.handle_offset;
}

/* The address of the tensor's implementation, the value of `tensor._cdata`. */
static inline char *tensor_access_implementation(PyObject *tensor)
{
    return *(char **)tensor_access_handle(tensor);
}

/* The dispatch key set as an integer. */
static inline uint64_t tensor_access_key_set(PyObject *tensor)
{
    if (tensor_access.key_set_offset < 0) {
        return tensor_access_ask_key_set(tensor);
    }
    return *(uint64_t *)(tensor_access_implementation(tensor) + tensor_access.key_set_offset);
}

static inline bool tensor_access_requires_grad(PyObject *tensor)
{
    if (torch_library.requires_grad != NULL) {
        return torch_library.requires_grad(tensor_access_implementation(tensor));
    }
    PyObject *answer = tensor_access.requires_grad(tensor, tensor_access.requires_grad_closure);
    bool requires_grad = answer == Py_True;
    Py_XDECREF(answer);
    return requires_grad;
}

#endif
