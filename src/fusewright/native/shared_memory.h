/* Memory that is written again and again, and handed out in between. */
#ifndef FUSEWRIGHT_SHARED_MEMORY_H
#define FUSEWRIGHT_SHARED_MEMORY_H

#include "tensor_access.h"

/* See the docstrings. */
PyObject *shared_memory_holders_of(PyObject *module, PyObject *args);
PyObject *shared_memory_use_of(PyObject *module, PyObject *args);
PyObject *shared_memory_names_of(PyObject *module, PyObject *tensors);

extern const char shared_memory_holders_of_doc[];
extern const char shared_memory_use_of_doc[];
extern const char shared_memory_names_of_doc[];

#endif
