/* GuardProgram: builds a tree of steps and tests from plain tuples, checks it, and says where it
   failed. */
#include "guard_journal.h"
#include "guard_sizes.h"

#include <stddef.h>
#include <structmember.h>

void guard_path_cut(GuardPath *path, int depth)
{
    while (path->used > depth) {
        Py_DECREF(path->values[--path->used]);
    }
}

static void report(GuardFailure *failure, Py_ssize_t test, PyObject *found)
{
    if (failure != NULL) {
        failure->test = test;
        failure->found = Py_XNewRef(found);
    }
}

bool guard_tests_run(GuardProgram *program, Py_ssize_t first, Py_ssize_t end, PyObject *value,
                     MetObjects *met, GuardFailure *failure)
{
    for (Py_ssize_t i = first; i < end; i++) {
        GuardTest *test = &program->tests[i];
        if (!test->check(test, value, met)) {
            PyObject *sizes = failure ? guard_sizes_found(test, met) : NULL;
            report(failure, i, sizes ? sizes : value);
            Py_XDECREF(sizes);
            return false;
        }
    }
    return true;
}

bool guard_node_run(GuardProgram *program, GuardNode *node, int depth, PyObject *base,
                    const GuardContext *context, MetObjects *met, GuardPath *path,
                    GuardFailure *failure)
{
    guard_path_cut(path, depth);
    PyObject *value = node->step.load(&node->step, base, context);
    if (value == NULL) {
        report(failure, node->first_test, NULL);
        return false;
    }
    path->values[path->used++] = value;
    return guard_tests_run(program, node->first_test, node[1].first_test, value, met, failure);
}

static bool run_nodes(GuardProgram *program, const GuardContext *context, MetObjects *met,
                      GuardPath *path, GuardFailure *failure)
{
    for (Py_ssize_t i = 0; i < program->node_count; i++) {
        GuardNode *node = &program->nodes[i];
        PyObject *base = node->depth > 0 ? path->values[node->depth - 1] : NULL;
        if (!guard_node_run(program, node, node->depth, base, context, met, path, failure)) {
            return false;
        }
    }
    return true;
}

bool guard_met_open(const GuardProgram *program, MetObjects *met, void *stack, size_t stack_size)
{
    size_t distinct_size = program->distinct_slots * sizeof *met->table;
    size_t same_size = program->same_slots * sizeof *met->same;
    size_t storage_size = program->storage_slots * sizeof *met->storages;
    size_t size = distinct_size + same_size + storage_size + program->size_slots * sizeof *met->sizes;
    bool fits = stack != NULL && size <= stack_size;
    void *memory = fits ? memset(stack, 0, size) : PyMem_Calloc(1, size);
    met->table = memory;
    met->mask = program->distinct_slots - 1;
    met->same = memory ? (PyObject **)((char *)memory + distinct_size) : NULL;
    met->storages = memory ? (MetStorage *)((char *)memory + distinct_size + same_size) : NULL;
    met->storage_count = 0;
    met->sizes =
        memory ? (int64_t *)((char *)memory + distinct_size + same_size + storage_size) : NULL;
    met->sized_count = 0;
    met->before = NULL;
    return memory != NULL;
}

void guard_met_close(const GuardProgram *program, MetObjects *met, const void *stack)
{
    for (size_t i = 0; i < program->same_slots; i++) {
        Py_XDECREF(met->same[i]);
    }
    if ((const void *)met->table != stack) {
        PyMem_Free(met->table);
    }
}

/* Run all steps and tests. */
static bool check_all(GuardProgram *program, const GuardContext *context, GuardFailure *failure)
{
    MetObject stack[GUARD_STACK_SLOTS];
    MetObjects met;
    if (!guard_met_open(program, &met, stack, sizeof stack)) {
        return false;
    }
    GuardPath path;
    path.used = 0;
    bool holds = run_nodes(program, context, &met, &path, failure);
    guard_path_cut(&path, 0);
    guard_met_close(program, &met, stack);
    return holds;
}

bool guard_program_check(GuardProgram *program, const GuardContext *context, GuardFailure *failure)
{
    Py_INCREF(program); /* an attribute that runs user code may drop the entry */
    JournalAnswer answer = failure ? JOURNAL_SILENT : guard_journal_ask(program, context);
    bool holds = answer == JOURNAL_HOLDS;
    if (answer == JOURNAL_SILENT) {
        holds = check_all(program, context, failure);
        if (holds) {
            guard_journal_write(program, context);
        }
    }
    Py_DECREF(program);
    PyErr_Clear();
    return holds;
}

bool guard_program_is_dead(GuardProgram *program)
{
    for (Py_ssize_t i = 0; i < program->test_count; i++) {
        if (guard_test_is_dead(&program->tests[i])) {
            return true;
        }
    }
    return false;
}

/* Append the tests of one node. */
static int build_tests(GuardProgram *self, PyObject *descriptions)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(descriptions); i++) {
        if (guard_test_build(&self->tests[self->test_count++], PyTuple_GET_ITEM(descriptions, i)) <
            0) {
            return -1;
        }
    }
    return 0;
}

/* The last node that is one depth less than `depth`; -1 for a root. The new node is the last. */
static Py_ssize_t find_parent(GuardProgram *self, int depth)
{
    Py_ssize_t parent = self->node_count - 2;
    while (parent >= 0 && self->nodes[parent].depth >= depth) {
        parent = self->nodes[parent].parent;
    }
    return parent;
}

static int build_node(GuardProgram *self, PyObject *description)
{
    int depth;
    PyObject *step, *tests;
    if (!PyArg_ParseTuple(description, "iO!O!:node", &depth, &PyTuple_Type, &step, &PyTuple_Type,
                          &tests)) {
        return -1;
    }
    int deepest = self->node_count > 0 ? self->nodes[self->node_count - 1].depth + 1 : 0;
    GuardNode *node = &self->nodes[self->node_count++];
    node->depth = Py_MIN(depth, GUARD_PROGRAM_DEPTH);
    node->first_test = self->test_count;
    node->parent = find_parent(self, node->depth);
    if (guard_step_build(&node->step, step, self->local_names) < 0) {
        return -1;
    }
    if (depth < 0 || depth > deepest || depth >= GUARD_PROGRAM_DEPTH ||
        node->step.root != (depth == 0)) {
        PyErr_Format(PyExc_ValueError, "guard step %R cannot stand at depth %d here", step, depth);
        return -1;
    }
    return build_tests(self, tests);
}

static Py_ssize_t count_tests(PyObject *nodes)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes); i++) {
        PyObject *node = PyTuple_GET_ITEM(nodes, i);
        bool valid = PyTuple_Check(node) && PyTuple_GET_SIZE(node) == 3 &&
                     PyTuple_Check(PyTuple_GET_ITEM(node, 2));
        if (!valid) {
            PyErr_Format(PyExc_TypeError, "a guard node must be (depth, step, tests), not %R",
                         node);
            return -1;
        }
        count += PyTuple_GET_SIZE(PyTuple_GET_ITEM(node, 2));
    }
    return count;
}

/* Room for the tests that compare objects: twice as many slots as objects that must differ, a power
   of two. */
static void size_met(GuardProgram *self)
{
    size_t distinct = 0;
    for (Py_ssize_t i = 0; i < self->test_count; i++) {
        const GuardTest *test = &self->tests[i];
        distinct += guard_test_is_distinct(test);
        self->storage_slots += guard_test_is_storage(test);
        self->size_slots = Py_MAX(self->size_slots, guard_sizes_slots(test));
        if (guard_test_is_same(test) && (size_t)test->number >= self->same_slots) {
            self->same_slots = (size_t)test->number + 1;
        }
    }
    self->distinct_slots = distinct > 0 ? 2 : 0;
    while (self->distinct_slots < 2 * distinct) {
        self->distinct_slots *= 2;
    }
}

static int build_program(GuardProgram *self, PyObject *nodes)
{
    Py_ssize_t test_count = count_tests(nodes);
    if (test_count < 0) {
        return -1;
    }
    self->nodes = PyMem_Calloc((size_t)PyTuple_GET_SIZE(nodes) + 1, sizeof *self->nodes);
    self->tests = PyMem_Calloc((size_t)test_count + 1, sizeof *self->tests);
    if (self->nodes == NULL || self->tests == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes); i++) {
        if (build_node(self, PyTuple_GET_ITEM(nodes, i)) < 0) {
            return -1;
        }
    }
    self->nodes[self->node_count].first_test = self->test_count;
    size_met(self);
    return 0;
}

static PyObject *GuardProgram_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"local_names", "nodes", NULL};
    PyObject *local_names, *nodes;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!:GuardProgram", names, &PyTuple_Type,
                                     &local_names, &PyTuple_Type, &nodes)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(local_names) > GUARD_PROGRAM_LOCALS) {
        PyErr_Format(PyExc_ValueError, "a guard program names at most %d locals",
                     GUARD_PROGRAM_LOCALS);
        return NULL;
    }
    GuardProgram *self = (GuardProgram *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->local_names = Py_NewRef(local_names);
    self->journal_credit = GUARD_JOURNAL_CREDIT;
    if (build_program(self, nodes) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int GuardProgram_traverse(PyObject *object, visitproc visit, void *arg)
{
    GuardProgram *self = (GuardProgram *)object;
    for (Py_ssize_t i = 0; i < self->node_count; i++) {
        Py_VISIT(self->nodes[i].step.operand);
    }
    for (Py_ssize_t i = 0; i < self->test_count; i++) {
        Py_VISIT(self->tests[i].expected);
    }
    return 0;
}

/* Frees all at once: a program is never seen half cleared, since only its entry or its owner
   reaches it. */
static void GuardProgram_dealloc(PyObject *object)
{
    GuardProgram *self = (GuardProgram *)object;
    PyObject_GC_UnTrack(object);
    guard_journal_drop_all(self);
    for (Py_ssize_t i = 0; i < self->node_count; i++) {
        Py_XDECREF(self->nodes[i].step.operand);
    }
    for (Py_ssize_t i = 0; i < self->test_count; i++) {
        Py_XDECREF(self->tests[i].expected);
    }
    PyMem_Free(self->nodes);
    PyMem_Free(self->tests);
    Py_XDECREF(self->local_names);
    Py_TYPE(object)->tp_free(object);
}

/* Run the program on a dictionary of locals and a function. -1 with an exception, 0 or 1. */
static int check_locals(GuardProgram *self, PyObject *args, GuardFailure *failure)
{
    PyObject *dictionary, *function = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O", &PyDict_Type, &dictionary, &function)) {
        return -1;
    }
    if (function != Py_None && !PyFunction_Check(function)) {
        PyErr_Format(PyExc_TypeError, "guards are read from a Python function, not %s",
                     Py_TYPE(function)->tp_name);
        return -1;
    }
    PyObject *locals[GUARD_PROGRAM_LOCALS];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->local_names); i++) {
        locals[i] = PyDict_GetItemWithError(dictionary, PyTuple_GET_ITEM(self->local_names, i));
        if (locals[i] == NULL && PyErr_Occurred()) {
            return -1;
        }
    }
    PyFunctionObject *owner = function == Py_None ? NULL : (PyFunctionObject *)function;
    GuardContext context = {locals, owner};
    return guard_program_check(self, &context, failure);
}

static PyObject *GuardProgram_check(PyObject *self, PyObject *args)
{
    int holds = check_locals((GuardProgram *)self, args, NULL);
    return holds < 0 ? NULL : PyBool_FromLong(holds);
}

static PyObject *GuardProgram_explain(PyObject *self, PyObject *args)
{
    GuardFailure failure = {0};
    int holds = check_locals((GuardProgram *)self, args, &failure);
    if (holds < 0) {
        return NULL;
    }
    if (holds) {
        Py_RETURN_NONE;
    }
    if (failure.found == NULL) {
        return Py_BuildValue("n()", failure.test);
    }
    return Py_BuildValue("n(N)", failure.test, failure.found);
}

static PyObject *GuardProgram_is_dead(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(guard_program_is_dead((GuardProgram *)self));
}

PyDoc_STRVAR(check_doc, "check(locals, function=None, /)\n--\n\n"
                        "Whether all tests hold for a frame of `function` with these arguments.");
PyDoc_STRVAR(
    explain_doc,
    "explain(locals, function=None, /)\n--\n\n"
    "None when all tests hold; else (index, found) of the first that does not, tests counted\n"
    "in the order given: `found` is a tuple of the object met, empty when there was none to\n"
    "load.");
PyDoc_STRVAR(is_dead_doc, "is_dead()\n--\n\n"
                          "Whether an object held weakly is gone, so that no check can hold.");

static PyMethodDef GuardProgram_methods[] = {
    {"check", GuardProgram_check, METH_VARARGS, check_doc},
    {"explain", GuardProgram_explain, METH_VARARGS, explain_doc},
    {"is_dead", GuardProgram_is_dead, METH_NOARGS, is_dead_doc},
    {NULL},
};

static PyMemberDef GuardProgram_members[] = {
    {"local_names", T_OBJECT, offsetof(GuardProgram, local_names), READONLY,
     "the locals that are read"},
    {"test_count", T_PYSSIZET, offsetof(GuardProgram, test_count), READONLY,
     "how many tests there are"},
    {NULL},
};

PyDoc_STRVAR(
    GuardProgram_doc,
    "GuardProgram(local_names, nodes)\n--\n\n"
    "Guards as a program run in C. `nodes` is a tuple of (depth, step, tests), each node\n"
    "after its parent: `step` is a tuple of a step's name and operand, `tests` a tuple of\n"
    "(name, expected). The steps stand in guard_steps.c, the tests in guard_tests.c;\n"
    "`fusewright.capture.guards` builds programs from sources. ValueError, TypeError: a\n"
    "malformed node.");

PyTypeObject GuardProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.GuardProgram",
    .tp_basicsize = sizeof(GuardProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = GuardProgram_doc,
    .tp_new = GuardProgram_new,
    .tp_dealloc = GuardProgram_dealloc,
    .tp_traverse = GuardProgram_traverse,
    .tp_methods = GuardProgram_methods,
    .tp_members = GuardProgram_members,
};
