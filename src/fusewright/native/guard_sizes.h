/* What has to hold between the symbolic sizes of several tensors and integers. */
#ifndef FUSEWRIGHT_GUARD_SIZES_H
#define FUSEWRIGHT_GUARD_SIZES_H

#include "guard_program.h"

/* The test "sizes": gathers the numbers of one object; the last of all evaluates the relations. */
bool guard_sizes_check(GuardTest *test, PyObject *value, MetObjects *met);
int guard_sizes_build(GuardTest *test, PyObject *expected);

/* How many numbers all such tests gather together; 0 for other tests. */
size_t guard_sizes_slots(const GuardTest *test);

/* The numbers gathered, as a new tuple; NULL before all are, or for other tests. */
PyObject *guard_sizes_found(const GuardTest *test, const MetObjects *met);

#endif
