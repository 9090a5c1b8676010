/* Draws from the state of torch's generator of the CPU, many at a time. */
#ifndef FUSEWRIGHT_RANDOM_DRAWS_H
#define FUSEWRIGHT_RANDOM_DRAWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `draw_bernoulli(generator, result, count, probability)`: see the docstring in module.c. */
PyObject *random_draws_bernoulli(PyObject *module, PyObject *args);

#endif
