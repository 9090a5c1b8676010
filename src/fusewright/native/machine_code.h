/* Object code as a Python object. */
#ifndef FUSEWRIGHT_MACHINE_CODE_H
#define FUSEWRIGHT_MACHINE_CODE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject MachineCode_Type;

/* `lacking_features(names)`: see the docstring in module.c. */
PyObject *machine_code_lacking(PyObject *module, PyObject *args);

/* `checksum(memory)`: see the docstring in module.c. */
PyObject *machine_code_checksum(PyObject *module, PyObject *args);

#endif
