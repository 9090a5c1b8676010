/* Tells whether somebody still holds memory that a recorded graph writes, and hands it out. */
#include "shared_memory.h"

#include <string.h>

/* What is known of one storage that nobody but its owner holds. */
enum { DATA, IMPLEMENTATION, TENSORS, OBJECTS, WORDS };

/* An implementation begins with the table of its virtual functions; the lower half of the word
   behind that counts who shares it. The owner compares that with what torch says. */
static int64_t tensors_of(int64_t implementation)
{
    uint32_t count;
    memcpy(&count, (const char *)(intptr_t)implementation + sizeof(void *), sizeof count);
    return count;
}

static bool is_elsewhere(PyObject *tensor, int64_t address)
{
    void *data = NULL;
    return torch_library.get_data_pointer(tensor_access_handle(tensor), &data) != 0 ||
           (int64_t)(intptr_t)data != address;
}

static int check_length(Py_ssize_t length, Py_ssize_t expected)
{
    if (length != expected) {
        PyErr_Format(PyExc_ValueError, "%zd were expected, not %zd", expected, length);
        return -1;
    }
    return 0;
}

/* Tuples of tensors and of their storages, of one length. -1 with an exception. */
static Py_ssize_t check_pairs(PyObject *tensors, PyObject *storages)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!tensor_access_is_tensor(PyTuple_GET_ITEM(tensors, i))) {
            PyErr_SetString(PyExc_TypeError, "the memory that is shared is that of tensors");
            return -1;
        }
    }
    if (PyTuple_GET_SIZE(storages) != count) {
        PyErr_SetString(PyExc_ValueError, "each tensor has one storage");
        return -1;
    }
    return count;
}

const char shared_memory_holders_of_doc[] =
    "holders_of(tensors, storages, implementations, /)\n--\n\n"
    "How tuples of tensors and of their storages are held now, as `use_of` compares it. The last are\n"
    "the addresses of the storages' implementations. Four 64-bit integers for each: the address of\n"
    "the memory and of the implementation, how many tensors and storage objects share that, and how\n"
    "many references the storage object has.";

PyObject *shared_memory_holders_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *tensors, *storages, *implementations;
    if (!PyArg_ParseTuple(args, "O!O!O!:holders_of", &PyTuple_Type, &tensors, &PyTuple_Type,
                          &storages, &PyTuple_Type, &implementations)) {
        return NULL;
    }
    Py_ssize_t count = check_pairs(tensors, storages);
    if (count < 0 || check_length(PyTuple_GET_SIZE(implementations), count) < 0) {
        return NULL;
    }
    int64_t known[WORDS];
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof known);
    for (Py_ssize_t i = 0; bytes != NULL && i < count; i++) {
        void *data = NULL;
        known[IMPLEMENTATION] = PyLong_AsLongLong(PyTuple_GET_ITEM(implementations, i));
        if (PyErr_Occurred() ||
            torch_library.get_data_pointer(
                tensor_access_handle(PyTuple_GET_ITEM(tensors, i)), &data) != 0) {
            Py_CLEAR(bytes);
            break;
        }
        known[DATA] = (int64_t)(intptr_t)data;
        known[TENSORS] = tensors_of(known[IMPLEMENTATION]);
        known[OBJECTS] = Py_REFCNT(PyTuple_GET_ITEM(storages, i));
        memcpy(PyBytes_AS_STRING(bytes) + i * (Py_ssize_t)sizeof known, known, sizeof known);
    }
    if (bytes == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a tensor has no memory");
    }
    return bytes;
}

const char shared_memory_use_of_doc[] =
    "use_of(tensors, storages, known, /)\n--\n\n"
    "How the memory of tuples of tensors, and of their storages, is used: 0: as it is `known` from\n"
    "`holders_of`, 1: somebody else holds some of it, 2: a storage has other memory now.";

PyObject *shared_memory_use_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *tensors, *storages;
    const char *bytes;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "O!O!y#:use_of", &PyTuple_Type, &tensors, &PyTuple_Type, &storages,
                          &bytes, &length)) {
        return NULL;
    }
    int64_t known[WORDS];
    Py_ssize_t count = check_pairs(tensors, storages);
    if (count < 0 || check_length(length, count * (Py_ssize_t)sizeof known) < 0) {
        return NULL;
    }
    long use = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        memcpy(known, bytes + i * (Py_ssize_t)sizeof known, sizeof known);
        if (is_elsewhere(PyTuple_GET_ITEM(tensors, i), known[DATA])) {
            return PyLong_FromLong(2);
        }
        if (tensors_of(known[IMPLEMENTATION]) != known[TENSORS] ||
            Py_REFCNT(PyTuple_GET_ITEM(storages, i)) != known[OBJECTS]) {
            use = 1;
        }
    }
    return PyLong_FromLong(use);
}

/* Another tensor object in the same memory, with versions of its own; NULL with an exception. */
static PyObject *name_of(PyObject *tensor)
{
    TensorHandle handle, other;
    int64_t dim, *sizes, *strides;
    if (!tensor_access_is_tensor(tensor)) {
        return PyErr_Format(PyExc_TypeError, "names_of takes tensors");
    }
    handle = tensor_access_handle(tensor);
    if (torch_library.wrap_tensor == NULL || torch_library.reinterpret == NULL ||
        torch_library.get_dim(handle, &dim) != 0 || torch_library.get_sizes(handle, &sizes) != 0 ||
        torch_library.get_strides(handle, &strides) != 0 ||
        torch_library.reinterpret(handle, dim, sizes, strides, 0, &other) != 0) {
        return PyErr_Format(PyExc_NotImplementedError, "this torch shares no memory of tensors");
    }
    PyObject *object = torch_library.wrap_tensor(other);
    torch_library.delete_tensor(other);
    return object;
}

const char shared_memory_names_of_doc[] =
    "names_of(tensors, /)\n--\n\n"
    "For each of a tuple of tensors a new one, in the same memory, in a list: no view in autograd's\n"
    "eyes, with versions of its own, and of inference mode where that is on. NotImplementedError:\n"
    "this torch lacks functions for it.";

PyObject *shared_memory_names_of(PyObject *Py_UNUSED(module), PyObject *tensors)
{
    if (!PyTuple_Check(tensors)) {
        PyErr_SetString(PyExc_TypeError, "names_of takes a tuple");
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    PyObject *names = PyList_New(count);
    for (Py_ssize_t i = 0; names != NULL && i < count; i++) {
        PyObject *name = name_of(PyTuple_GET_ITEM(tensors, i));
        if (name == NULL) {
            Py_CLEAR(names);
        } else {
            PyList_SET_ITEM(names, i, name);
        }
    }
    return names;
}
