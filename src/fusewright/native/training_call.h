/* Calls of a compiled graph in training. */
#ifndef FUSEWRIGHT_TRAINING_CALL_H
#define FUSEWRIGHT_TRAINING_CALL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject TrainingCall_Type;

#endif
