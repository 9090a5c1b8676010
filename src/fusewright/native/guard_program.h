/* Guard programs: a tree of objects to load, each with tests, run in order until one fails. */
#ifndef FUSEWRIGHT_GUARD_PROGRAM_H
#define FUSEWRIGHT_GUARD_PROGRAM_H

#include "tensor_access.h"

#define GUARD_PROGRAM_LOCALS 1024 /* most locals that a program may name */
#define GUARD_PROGRAM_DEPTH 256   /* longest path from a root to an object */

/* What a program reads its roots from. */
typedef struct {
    PyObject *const *locals; /* in the order of the program's `local_names`; NULL where unbound */
    PyFunctionObject *function; /* whose globals, builtins and closure are read; may be NULL */
} GuardContext;

typedef struct {
    PyObject *object; /* borrowed; only its address is compared */
    Py_ssize_t group;
} MetObject;

/* The bytes of a tensor's storage. */
typedef struct {
    uintptr_t begin, end;
    Py_ssize_t group; /* tensors that should share one storage are of one group; < 0: only read */
} MetStorage;

/* Objects already met in one check, for the tests that compare objects with each other. */
typedef struct MetObjects {
    MetObject *table;     /* those that must differ: open addressing, at most half full */
    size_t mask;          /* its slots, a power of two, less one */
    PyObject **same;      /* the first of each group that must be the same; owned, or NULL */
    MetStorage *storages; /* those that must overlap only in their groups */
    Py_ssize_t storage_count;
    int64_t *sizes; /* the numbers gathered by tests of sizes, and how many tests have */
    Py_ssize_t sized_count;
    const struct MetObjects *before; /* met by what need not run again; may be NULL */
} MetObjects;

/* What of an object a step or test looks at: on which words of memory its outcome depends. */
typedef enum {
    READS_ANYTHING, /* not known: it runs at every check */
    READS_ADDRESS,  /* which of the objects met it is, and nothing more */
    READS_IDENTITY, /* whether it is the object expected */
    READS_TYPE,
    READS_CONSTANT,   /* its value, if that is an immutable constant */
    READS_DICTIONARY, /* the items of a dictionary, or how many there are */
    READS_LENGTH,     /* the number of items of any built-in container */
    READS_ITEM,       /* an item of a list or tuple */
    READS_INSTANCE,   /* its `__dict__` */
    READS_CLASS,      /* attributes of a class and its bases */
    READS_FIELD,      /* an attribute, if that is a field of its own */
    READS_CELL,
    READS_CODE,
    READS_TENSOR, /* a tensor's metadata or memory: runs at every check, but calls no Python */
} Reads;

typedef struct GuardStep GuardStep;
typedef struct GuardTest GuardTest;

/* Load an object from `base` (NULL for a root). A new reference; NULL, with or without an exception
   set, when it is not there. */
typedef PyObject *(*StepLoad)(GuardStep *step, PyObject *base, const GuardContext *context);

/* Whether `value` is as the test expects. May leave an exception set when it is not. */
typedef bool (*TestCheck)(GuardTest *test, PyObject *value, MetObjects *met);

struct GuardStep {
    StepLoad load;
    PyObject *operand; /* a name or key; may be NULL */
    int32_t number;    /* a position */
    bool root;         /* reads no base */
    bool from_local;   /* an argument */
    Reads reads;       /* what of the base; READS_IDENTITY: a root that may be remembered */
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
    Py_ssize_t number;  /* a length, a state, or the group of a comparison between objects */
    uint64_t word;      /* what a state should be, or how many storages there are */
    bool weak;          /* `expected` is a weak reference */
    Reads reads;
};

/* Fill a step from a tuple `(name, operand?)`. -1 with an exception when it is malformed. */
int guard_step_build(GuardStep *step, PyObject *description, PyObject *local_names);

/* Fill a test from a tuple `(name, expected)`. -1 with an exception when it is malformed. */
int guard_test_build(GuardTest *test, PyObject *description);

/* Whether the test holds an object weakly and the object is gone. */
bool guard_test_is_dead(const GuardTest *test);

/* Whether the test compares objects with each other: whether they must differ, or be the same. */
bool guard_test_is_distinct(const GuardTest *test);
bool guard_test_is_same(const GuardTest *test);
bool guard_test_is_storage(const GuardTest *test);

typedef struct {
    GuardStep step;
    int depth;
    Py_ssize_t parent;     /* index of the node that it is loaded from; -1: a root */
    Py_ssize_t first_test; /* its tests end where the next node's begin */
} GuardNode;

typedef struct GuardJournal GuardJournal;

#define GUARD_JOURNALS 16 /* most journals that a program keeps */

typedef struct {
    PyObject_HEAD
    PyObject *local_names; /* tuple of str */
    GuardNode *nodes;      /* each after its parent, one depth more; a last one ends the tests */
    GuardTest *tests;
    Py_ssize_t node_count;
    Py_ssize_t test_count;
    size_t distinct_slots; /* 0, or a power of two */
    size_t same_slots;
    size_t storage_slots;
    size_t size_slots;
    GuardJournal *journals[GUARD_JOURNALS]; /* the last used first */
    int journal_count;
    int journal_credit; /* see guard_journal.c */
} GuardProgram;

/* Where a check failed. */
typedef struct {
    Py_ssize_t test; /* the first test that did not hold */
    PyObject *found; /* what it was given, a new reference; NULL when the object was not there */
} GuardFailure;

/* The loaded objects from a root down to the current node, owned. */
typedef struct {
    int used;
    PyObject *values[GUARD_PROGRAM_DEPTH];
} GuardPath;

/* Objects met in a check of at most this many slots live on the C stack. */
#define GUARD_STACK_SLOTS 32

extern PyTypeObject GuardProgram_Type;

/* Whether all tests hold; fills `failure` when it is given and one does not. Leaves no exception
   set. */
bool guard_program_check(GuardProgram *program, const GuardContext *context, GuardFailure *failure);

bool guard_program_is_dead(GuardProgram *program);

void guard_path_cut(GuardPath *path, int depth);

/* Run the tests from `first` to before `end` on an object. */
bool guard_tests_run(GuardProgram *program, Py_ssize_t first, Py_ssize_t end, PyObject *value,
                     MetObjects *met, GuardFailure *failure);

/* Load the object of one node, keep it on the path at `depth`, and run its tests. */
bool guard_node_run(GuardProgram *program, GuardNode *node, int depth, PyObject *base,
                    const GuardContext *context, MetObjects *met, GuardPath *path,
                    GuardFailure *failure);

/* Room for the objects that the tests of one check meet, in `stack` where there is one and it
   suffices. False when memory is short. */
bool guard_met_open(const GuardProgram *program, MetObjects *met, void *stack, size_t stack_size);
void guard_met_close(const GuardProgram *program, MetObjects *met, const void *stack);

/* `dispatch_state()` and `read_tensor(tensor)`: see their docstrings in module.c. */
PyObject *guard_dispatch_state(PyObject *module, PyObject *ignored);
PyObject *guard_read_tensor(PyObject *module, PyObject *tensor);

#endif
