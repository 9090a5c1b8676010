/* Global state of torch that captured graphs depend on, read through libtorch's own C++ functions.
 */
#ifndef FUSEWRIGHT_TORCH_STATE_H
#define FUSEWRIGHT_TORCH_STATE_H

#include "torch_library.h"

/* The number of a state by name; -1 where this torch has no function for it. */
int torch_state_find(PyObject *name);

/* What a state is now, as a number that means something only beside another of the same. */
uint64_t torch_state_read(int state);

/* `torch_states()`: see its docstring in module.c. */
PyObject *torch_states(PyObject *module, PyObject *ignored);

#endif
