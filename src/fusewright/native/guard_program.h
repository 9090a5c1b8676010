/* Guard programs: a tree of objects to load, each with tests, run in order until one fails. */
#ifndef FUSEWRIGHT_GUARD_PROGRAM_H
#define FUSEWRIGHT_GUARD_PROGRAM_H

#include "tensor_access.h"

#define GUARD_PROGRAM_LOCALS 256 /* most locals that a program may name */
#define GUARD_PROGRAM_DEPTH 256  /* longest path from a root to an object */

/* What a program reads its roots from. */
typedef struct {
    PyObject *const *locals; /* in the order of the program's `local_names`; NULL where unbound */
    PyFunctionObject *function; /* whose globals, builtins and closure are read; may be NULL */
} GuardContext;

typedef struct {
    PyObject *object; /* borrowed; only its address is compared */
    Py_ssize_t group;
} MetObject;

/* Objects already met in one check, for the tests that compare objects with each other. */
typedef struct {
    MetObject *table; /* those that must differ: open addressing, at most half full */
    size_t mask;      /* its slots, a power of two, less one */
    PyObject **same;  /* the first of each group that must be the same; owned, or NULL */
} MetObjects;

typedef struct GuardStep GuardStep;
typedef struct GuardTest GuardTest;

/* Load an object from `base` (NULL for a root). A new reference; NULL, with or without an exception
   set, when it is not there. */
typedef PyObject *(*StepLoad)(GuardStep *step, PyObject *base, const GuardContext *context);

/* Whether `value` is as the test expects. May leave an exception set when it is not. */
typedef bool (*TestCheck)(GuardTest *test, PyObject *value, MetObjects *met);

/* What was found in a dictionary when it was last read. Every change gives a dictionary a version
   that no dictionary had before, so that an equal version means the same dictionary, unchanged,
   which still holds the value. */
typedef struct {
    uint64_t version; /* 0: nothing found yet */
    PyObject *value;  /* borrowed */
} DictMemo;

/* The version of a dictionary; 0 where it is not relied on: from 3.12 on it is deprecated, and
   attributes may be stored without changing it. */
static inline uint64_t guard_dict_version(PyObject *dictionary)
{
#if PY_VERSION_HEX < 0x030C0000
    return ((PyDictObject *)dictionary)->ma_version_tag;
#else
    (void)dictionary;
    return 0;
#endif
}

/* A large model has thousands of steps and tests, and reading them takes most of a check's time:
   both are kept short. */
struct GuardStep {
    StepLoad load;
    PyObject *operand; /* a name or key; may be NULL */
    DictMemo memo;     /* for items of dictionaries */
    int32_t number;    /* a position */
    bool root;         /* reads no base */
};

typedef struct {
    uint64_t key_set;
    int32_t dtype, device_type, device_index;
    int8_t requires_grad;  /* 0, 1, or -1: not compared */
    int8_t strides_tested; /* 0: any strides */
    int64_t dim;
    int64_t extents[]; /* `dim` sizes, then `dim` strides; -1: any */
} TensorExpectation;

struct GuardTest {
    TestCheck check;
    PyObject *expected; /* an object, a weak reference to it, or bytes of what is compared */
    union {
        Py_ssize_t number;       /* a length, or the group of a comparison between objects */
        uint64_t passed_version; /* of the dictionary whose keys last were as expected */
    };
    bool weak; /* `expected` is a weak reference */
};

/* Fill a step from a tuple `(name, operand?)`. -1 with an exception when it is malformed. */
int guard_step_build(GuardStep *step, PyObject *description, PyObject *local_names);

bool guard_step_is_dict_item(const GuardStep *step);

/* Whether a step of a dictionary's item would load from `base` the object that it loaded last. */
static inline bool guard_step_is_remembered(const GuardStep *step, PyObject *base)
{
    return step->memo.version != 0 && PyDict_Check(base) &&
           guard_dict_version(base) == step->memo.version;
}

/* Fill a test from a tuple `(name, expected)`. -1 with an exception when it is malformed. */
int guard_test_build(GuardTest *test, PyObject *description);

/* Whether the test's result follows from which object it is given, whatever happened to it since.
 */
bool guard_test_is_settled(const GuardTest *test);

/* Whether the test holds an object weakly and the object is gone. */
bool guard_test_is_dead(const GuardTest *test);

/* Whether the test compares objects with each other: whether they must differ, or be the same. */
bool guard_test_is_distinct(const GuardTest *test);
bool guard_test_is_same(const GuardTest *test);

typedef struct {
    GuardStep step;
    int depth;
    bool settled; /* an item of a dictionary that need not be seen while the dictionary is the same
                   */
    Py_ssize_t first_test; /* its tests end where the next node's begin */
} GuardNode;

typedef struct {
    PyObject_HEAD
    PyObject *local_names; /* tuple of str */
    GuardNode *nodes;      /* each after its parent, one depth more; a last one ends the tests */
    GuardTest *tests;
    Py_ssize_t node_count;
    Py_ssize_t test_count;
    size_t distinct_slots; /* 0, or a power of two */
    size_t same_slots;
} GuardProgram;

/* Where a check failed. */
typedef struct {
    Py_ssize_t test; /* the first test that did not hold */
    PyObject *found; /* what it was given, a new reference; NULL when the object was not there */
} GuardFailure;

extern PyTypeObject GuardProgram_Type;

/* Whether all tests hold; fills `failure` when it is given and one does not. Leaves no exception
   set. */
bool guard_program_check(GuardProgram *program, const GuardContext *context, GuardFailure *failure);

bool guard_program_is_dead(GuardProgram *program);

/* `dispatch_state()` and `read_tensor(tensor)`: see their docstrings in module.c. */
PyObject *guard_dispatch_state(PyObject *module, PyObject *ignored);
PyObject *guard_read_tensor(PyObject *module, PyObject *tensor);

#endif
