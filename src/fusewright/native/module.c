/* The extension module: its functions and types. Imports without torch; `attach_torch` comes before tensors are read. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "cpu_kernel.h"
#include "tensor_access.h"

PyDoc_STRVAR(attach_torch_doc,
             "attach_torch(path, tensor_type, parameter_type, samples, /)\n--\n\n"
             "Find torch's C functions and the layout of its tensor objects.\n\n"
             "`path` is torch._C's file; `samples` a tuple of (tensor, tensor._cdata, dispatch key set as an int),\n"
             "tensors of several kinds. True when key sets can be read from memory, else False.\n"
             "ImportError: this torch is not one that fusewright knows.");

static PyMethodDef functions[] = {
    {"attach_torch", tensor_access_attach, METH_VARARGS, attach_torch_doc},
    {NULL},
};

static int execute(PyObject *module)
{
    static PyTypeObject *const types[] = {&CpuKernel_Type};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fusewright.native._extension",
    .m_doc = "The part of fusewright that runs at every call, in C.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__extension(void)
{
    return PyModuleDef_Init(&definition);
}
