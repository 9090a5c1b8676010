/* Finds where tensor objects keep what guards and kernels read, by looking for known values in
   sample tensors: torch promises no layout, and this extension is compiled without its headers. */
#include "tensor_access.h"

#include <string.h>

TensorAccess tensor_access;

/* An implementation object is at least this long in every supported torch, so that the probe reads
   only inside it. Where the key set is not among these, it is behind them: 2.11's is longer by a
   word. */
#define IMPLEMENTATION_BYTES 176
#define LONGEST_IMPLEMENTATION_BYTES 184

static bool object_matches(PyObject *sample, Py_ssize_t offset)
{
    PyObject *tensor = PyTuple_GET_ITEM(sample, 0);
    uint64_t address = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(sample, 1));
    uint64_t word;
    memcpy(&word, (char *)tensor + offset, sizeof word);
    return word == address;
}

static bool implementation_matches(PyObject *sample, Py_ssize_t offset)
{
    char *implementation = (char *)PyLong_AsVoidPtr(PyTuple_GET_ITEM(sample, 1));
    uint64_t key_set = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(sample, 2));
    uint64_t word;
    memcpy(&word, implementation + offset, sizeof word);
    return word == key_set;
}

/* The one offset below `limit` at which every sample matches; -1 when there is none or more than
   one. */
static Py_ssize_t find_offset(PyObject *samples, Py_ssize_t start, Py_ssize_t limit,
                              bool (*matches)(PyObject *, Py_ssize_t))
{
    Py_ssize_t found = -1;
    for (Py_ssize_t offset = start; offset + 8 <= limit; offset += 8) {
        bool all = true;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(samples) && all; i++) {
            all = matches(PyTuple_GET_ITEM(samples, i), offset);
        }
        if (all && found >= 0) {
            return -1;
        }
        if (all) {
            found = offset;
        }
    }
    return found;
}

/* Keep the C function behind `tensor.requires_grad`, found on the class that defines it. */
static int find_requires_grad(PyTypeObject *tensor_type, TensorAccess *access)
{
    PyObject *descriptor = NULL;
    PyObject *classes = tensor_type->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes) && descriptor == NULL; i++) {
        PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(classes, i);
        PyObject *members = PyObject_GetAttrString((PyObject *)type, "__dict__");
        if (members == NULL) {
            return -1;
        }
        descriptor = PyMapping_GetItemString(members, "requires_grad");
        Py_DECREF(members);
        PyErr_Clear();
    }
    if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        Py_XDECREF(descriptor);
        PyErr_SetString(PyExc_ImportError, "this torch keeps requires_grad in an unknown way; "
                                           "fusewright works with torch 2.11 to 2.13");
        return -1;
    }
    PyGetSetDef *definition = ((PyGetSetDescrObject *)descriptor)->d_getset;
    access->requires_grad = definition->get;
    access->requires_grad_closure = definition->closure;
    Py_DECREF(descriptor); /* its class keeps it alive, and classes of torch are never freed */
    return 0;
}

uint64_t tensor_access_ask_key_set(PyObject *tensor)
{
    PyObject *answer = PyObject_CallOneArg(tensor_access.key_set_of, tensor);
    uint64_t key_set = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return key_set;
}

static int check_samples(PyObject *samples)
{
    bool valid = PyTuple_Check(samples) && PyTuple_GET_SIZE(samples) > 0;
    for (Py_ssize_t i = 0; valid && i < PyTuple_GET_SIZE(samples); i++) {
        PyObject *sample = PyTuple_GET_ITEM(samples, i);
        valid = PyTuple_Check(sample) && PyTuple_GET_SIZE(sample) == 3 &&
                PyLong_Check(PyTuple_GET_ITEM(sample, 1)) &&
                PyLong_Check(PyTuple_GET_ITEM(sample, 2));
    }
    if (!valid) {
        PyErr_SetString(PyExc_TypeError,
                        "samples must be a tuple of (tensor, _cdata, key set) tuples");
    }
    return valid ? 0 : -1;
}

PyObject *tensor_access_attach(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path;
    PyTypeObject *tensor_type, *parameter_type;
    PyObject *samples, *key_set_of;
    if (!PyArg_ParseTuple(args, "sO!O!OO", &path, &PyType_Type, &tensor_type, &PyType_Type,
                          &parameter_type, &samples, &key_set_of)) {
        return NULL;
    }
    if (check_samples(samples) < 0 || torch_library_load(path) < 0) {
        return NULL;
    }
    TensorAccess found = {
        .tensor_type = tensor_type, .parameter_type = parameter_type, .key_set_of = key_set_of};
    found.handle_offset =
        find_offset(samples, sizeof(PyObject), tensor_type->tp_basicsize, object_matches);
    if (found.handle_offset < 0) {
        PyErr_SetString(PyExc_ImportError,
                        "fusewright cannot find the handle inside this torch's tensor "
                        "objects; it works with torch 2.11 to 2.13");
        return NULL;
    }
    found.key_set_offset = find_offset(samples, 0, IMPLEMENTATION_BYTES, implementation_matches);
    if (found.key_set_offset < 0) {
        found.key_set_offset = find_offset(samples, IMPLEMENTATION_BYTES,
                                           LONGEST_IMPLEMENTATION_BYTES, implementation_matches);
    }
    if (find_requires_grad(tensor_type, &found) < 0) {
        return NULL;
    }
    Py_INCREF(tensor_type);
    Py_INCREF(parameter_type);
    Py_INCREF(key_set_of);
    tensor_access = found;
    return PyBool_FromLong(found.key_set_offset >= 0);
}

PyObject *tensor_access_first_elsewhere(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *inputs;
    const char *bytes;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "O!y#", &PyList_Type, &inputs, &bytes, &length)) {
        return NULL;
    }
    if (length != PyList_GET_SIZE(inputs) * (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "first_elsewhere takes 8 bytes for each input");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs); i++) {
        int64_t address;
        memcpy(&address, bytes + i * sizeof address, sizeof address);
        PyObject *input = PyList_GET_ITEM(inputs, i);
        void *data = NULL;
        if (address == 0) {
            continue;
        }
        if (!tensor_access_is_tensor(input) ||
            torch_library.get_data_pointer(tensor_access_handle(input), &data) != 0 ||
            (int64_t)(intptr_t)data != address) {
            return PyLong_FromSsize_t(i);
        }
    }
    return PyLong_FromLong(-1);
}

PyObject *tensor_access_extents(const int64_t *extents, int64_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (int64_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *extent = PyLong_FromLongLong(extents[i]);
        if (extent == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, extent);
    }
    return tuple;
}

/* A size or stride of a tensor, read from where it is kept; by the tensor's method where it is of
   another class, or refuses. */
static PyObject *extent_of(PyObject *const *args, Py_ssize_t count, const char *method,
                           int32_t (*read)(TensorHandle, int64_t **))
{
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "%s of a tensor takes a dimension", method);
    }
    PyObject *tensor = args[0];
    bool is_plain = Py_IS_TYPE(tensor, tensor_access.tensor_type) ||
                    Py_IS_TYPE(tensor, tensor_access.parameter_type);
    int64_t number = PyLong_AsLongLong(args[1]), dim, *extents;
    if (number == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (is_plain && number >= 0 && torch_library.get_dim(tensor_access_handle(tensor), &dim) == 0 &&
        number < dim && read(tensor_access_handle(tensor), &extents) == 0) {
        return PyLong_FromLongLong(extents[number]);
    }
    return PyObject_CallMethod(tensor, method, "O", args[1]);
}

PyObject *tensor_access_size(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    return extent_of(args, count, "size", torch_library.get_sizes);
}

PyObject *tensor_access_stride(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    return extent_of(args, count, "stride", torch_library.get_strides);
}
