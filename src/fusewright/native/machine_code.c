/* MachineCode: object code in this process, as a Python object that keeps it. */
#include "machine_code.h"

#include "standalone/checksum.h"
#include "standalone/object_code.h"

typedef struct {
    PyObject_HEAD
    ObjectCode *code;
} MachineCode;

static PyObject *MachineCode_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"file", NULL};
    Py_buffer file;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*:MachineCode", names, &file)) {
        return NULL;
    }
    char message[200];
    MachineCode *self = (MachineCode *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->code = object_code_load(file.buf, (size_t)file.len, message, sizeof message);
        if (self->code == NULL) {
            PyErr_SetString(PyExc_ValueError, message);
            Py_CLEAR(self);
        }
    }
    PyBuffer_Release(&file);
    return (PyObject *)self;
}

static void MachineCode_dealloc(PyObject *object)
{
    MachineCode *self = (MachineCode *)object;
    if (self->code != NULL) {
        object_code_free(self->code);
    }
    Py_TYPE(object)->tp_free(object);
}

PyDoc_STRVAR(address_doc, "address(name, /)\n--\n\n"
                          "The address of a function. KeyError: there is none of this name.");

static PyObject *address(PyObject *object, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) {
        return NULL;
    }
    void *found = object_code_symbol(((MachineCode *)object)->code, text);
    if (found == NULL) {
        PyErr_SetObject(PyExc_KeyError, name);
        return NULL;
    }
    return PyLong_FromVoidPtr(found);
}

static PyMethodDef MachineCode_methods[] = {
    {"address", address, METH_O, address_doc},
    {NULL},
};

PyDoc_STRVAR(MachineCode_doc,
             "MachineCode(file)\n--\n\n"
             "The code of an ELF object file (bytes), loaded into this process without a linker.\n"
             "ValueError: it is damaged, for another processor, or needs what is not there. The\n"
             "memory is freed with this object.");

PyTypeObject MachineCode_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.MachineCode",
    .tp_basicsize = sizeof(MachineCode),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = MachineCode_doc,
    .tp_new = MachineCode_new,
    .tp_dealloc = MachineCode_dealloc,
    .tp_methods = MachineCode_methods,
};

PyObject *machine_code_lacking(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *names;
    if (!PyArg_ParseTuple(args, "O!:lacking_features", &PyTuple_Type, &names)) {
        return NULL;
    }
    PyObject *lacking = PyList_New(0);
    for (Py_ssize_t i = 0; lacking != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        const char *text = PyUnicode_AsUTF8(name);
        if (text == NULL || (processor_has(text) != 1 && PyList_Append(lacking, name) < 0)) {
            Py_CLEAR(lacking);
        }
    }
    return lacking;
}

PyObject *machine_code_checksum(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer memory;
    uint32_t sums[CHECKSUM_LANES];
    if (!PyArg_ParseTuple(args, "y*:checksum", &memory)) {
        return NULL;
    }
    if (memory.len % (CHECKSUM_LANES * CHECKSUM_WORD) != 0) {
        PyErr_SetString(PyExc_ValueError, "a checksum is of a multiple of 32 bytes");
        PyBuffer_Release(&memory);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    checksum(memory.buf, (size_t)memory.len, sums);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&memory);
    return PyBytes_FromStringAndSize((const char *)sums, sizeof sums);
}
