/* CallPlan: what surrounds the kernels of a graph, as operations that one C function runs. */
#ifndef FUSEWRIGHT_CALL_PLAN_H
#define FUSEWRIGHT_CALL_PLAN_H

#include "tensor_access.h"

/* A value of a call. Empty: all are NULL. An object, owned, with the handle inside it where it is
   a tensor. Or a handle alone, owned: a tensor that no Python code has needed yet. Or a part of an
   arena that only kernels use. */
typedef struct {
    PyObject *object;
    TensorHandle handle;
    char *memory;
} PlanSlot;

/* One operation as it is kept: a header, then its operands. */
enum { OPERATION, LINE, LENGTH, HEADER_WORDS };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    int64_t *words; /* operations, one behind the other */
    Py_ssize_t word_count;
    Py_ssize_t input_count; /* the first slots */
    Py_ssize_t slot_count;
    Py_ssize_t number_count;
    int64_t *numbers; /* what they are when a call begins */
    PlanSlot *constants;
    Py_ssize_t constant_count;
    Py_ssize_t widest;  /* the most operands of an operation */
    PyObject *file;     /* the readable twin, which tracebacks show: its path, */
    PyObject *variables; /* and its globals */
} CallPlan;

/* The allocations of a plan that its results lie in, and memory for them: see plan_results.c. */
typedef struct {
    const int64_t **allocations; /* the operands of each */
    Py_ssize_t count;
    PyObject *memory; /* a list of as many tensors or None */
} PlanResults;

/* One call. */
typedef struct {
    const CallPlan *plan;
    PlanSlot *slots;
    int64_t *numbers;
    void **scratch; /* room for the operands of one operation, and one more ahead of them */
    PyObject *result;
    const PlanResults *results; /* NULL: they lie in memory of their own */
} PlanFrame;

/* An operation. `form` tells its operands, a letter each:
     o  a slot that is written            n  a number that is written
     s  a slot, or a constant as ~index   r  a number that is read
     d  a slot that is written, or NOTHING
     k  a constant, as ~index             q  a constant, or NOTHING
     i  the integer itself
     #  a count: letters behind a * come so often, one group for each *
   Returns how many operations behind it are skipped, or -1 with an exception. */
typedef struct {
    const char *name;
    const char *form;
    int (*run)(PlanFrame *frame, const int64_t *operands);
    bool is_told; /* whether profilers are told of it */
} PlanOperation;

#define NOTHING INT64_MIN

extern const PlanOperation plan_operations[];
extern const Py_ssize_t plan_operation_count;

/* Call a plan with its inputs, or with one list of them, which is cleared; `results` may be NULL. */
PyObject *call_plan_run(CallPlan *plan, PyObject *const *args, Py_ssize_t count,
                        const PlanResults *results);

extern PyTypeObject CallPlan_Type;

#endif
