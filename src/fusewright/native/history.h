/* Histories of a compiled graph's outputs: the autograd nodes of its calls, and their backward. */
#ifndef FUSEWRIGHT_HISTORY_H
#define FUSEWRIGHT_HISTORY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject History_Type;
extern PyTypeObject HistoryCall_Type;

/* Have autograd make the node of a call in a history, and put the outputs that lead to it in the
   places of those without. `inputs` is a tuple, `outputs` a list. -1 with an exception. */
int history_add(PyObject *history, PyObject *inputs, PyObject *outputs);

/* The forward of the autograd function, and the `apply` of its nodes: docstrings in module.c. */
PyObject *history_forward(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *history_backward(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
