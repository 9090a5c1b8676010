/* A check that held depended on certain words of memory: the version of a dictionary, the class of
   an object, the pointer in a cell. A journal lists them with what they were. While they are as
   they were, so is the outcome, and nothing has to be looked up again.

   The words stand in the order in which they were reached, each in an object that those before it
   show to be alive: a program's root is alive in every call; an unchanged dictionary holds what it
   held. An equal address alone does not show that the object there is the same one, so the journal
   keeps what is known of each object. A dictionary's version and a class's version tag belonged to
   no other and to no other state before, so what is reached through them is the very same.

   What cannot be told from words (attributes with getters, the thread's state, arguments made anew
   for each call) runs as ever, after the words; so do the tests of tensors, which change in place.
 */
#include "guard_journal.h"

#include <string.h>
#include <structmember.h>

#include "interpreter_frame.h"

/* A journal costs about as much to write as this many full checks save. */
#define WRITE_COST 8

/* A journal with fewer words than this is not worth having. */
#define FEWEST_WORDS 4

/* What the words so far show of an object. Each includes those before it. */
typedef enum {
    NOTHING,
    ALIVE,       /* there is an object at the address */
    SAME_CLASS,  /* with the same class, or a class laid out alike */
    SAME_OBJECT, /* the one that was there */
    UNCHANGED,   /* a dictionary with the same items, or a class with the same attributes */
} Known;

typedef struct {
    const void *address;
    uint64_t expected;
} Word;

typedef struct {
    GuardStep *step;
    PyObject *object; /* borrowed: only its address is compared */
} Root;

typedef struct {
    GuardTest *test;
    PyObject *object; /* borrowed from what the words show to be alive */
} TensorTest;

/* A node that runs at every check. */
typedef struct {
    GuardNode *node;
    PyObject *base; /* borrowed likewise; NULL: another fresh node before it, or none */
    int depth;      /* below the first fresh one */
} FreshNode;

struct GuardJournal {
    int users;
    Py_ssize_t root_count, word_count, tensor_count, fresh_count;
    Root *roots;
    Word *words;
    TensorTest *tensors;
    FreshNode *fresh;
    MetObjects met; /* by all nodes that are not fresh; holds no references */
};

/* Writing ----------------------------------------------------------------------------------------
 */

typedef struct {
    PyObject *object; /* owned; NULL for a fresh node */
    Known known;
    int depth; /* of a fresh node, below the first fresh one */
} Reached;

static void add_word(GuardJournal *journal, const void *address)
{
    uint64_t now;
    memcpy(&now, address, sizeof now);
    journal->words[journal->word_count++] = (Word){address, now};
}

/* Most words that one step or test adds. */
#define MOST_WORDS 4

static bool needs_class(GuardJournal *journal, Reached *of)
{
    if (of->known < SAME_CLASS && !PyType_HasFeature(Py_TYPE(of->object), Py_TPFLAGS_HEAPTYPE)) {
        add_word(journal, &of->object->ob_type); /* a class that is never freed */
        of->known = SAME_CLASS;
    }
    return of->known >= SAME_CLASS;
}

/* Where a dictionary keeps its version, which is no part of the interface from 3.12 on. From 3.13
   on attributes may be stored without changing it: NULL. */
static const void *version_address(PyObject *dictionary)
{
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return &((PyDictObject *)dictionary)->ma_version_tag;
#pragma GCC diagnostic pop
#else
    (void)dictionary;
    return NULL;
#endif
}

static bool reads_dictionary(GuardJournal *journal, Reached *of)
{
    if (!PyDict_Check(of->object) || PyODict_Check(of->object) || !needs_class(journal, of) ||
        version_address(of->object) == NULL) {
        return false;
    }
    if (of->known < UNCHANGED) {
        add_word(journal, version_address(of->object));
        of->known = UNCHANGED;
    }
    return true;
}

/* The tag is followed by padding, which is never written. */
static bool reads_class(GuardJournal *journal, Reached *of)
{
    if (!PyType_Check(of->object) || !needs_class(journal, of) ||
        !PyType_HasFeature((PyTypeObject *)of->object, Py_TPFLAGS_VALID_VERSION_TAG)) {
        return false;
    }
    if (of->known < UNCHANGED) {
        add_word(journal, &((PyTypeObject *)of->object)->tp_version_tag);
        of->known = UNCHANGED;
    }
    return true;
}

static bool reads_length(GuardJournal *journal, Reached *of)
{
    PyObject *object = of->object;
    if (!needs_class(journal, of)) {
        return false;
    }
    if (PyDict_Check(object)) {
        add_word(journal, &((PyDictObject *)object)->ma_used);
        return true;
    }
    if (PyList_Check(object) || PyTuple_Check(object)) {
        add_word(journal, &((PyVarObject *)object)->ob_size);
        return true;
    }
    return false;
}

/* What is known of the item; NOTHING when it cannot be. */
static Known reads_item(GuardJournal *journal, Reached *of, Py_ssize_t index)
{
    PyObject *object = of->object;
    if (PyTuple_Check(object) && of->known >= SAME_OBJECT) {
        return SAME_OBJECT;
    }
    if (!reads_length(journal, of)) {
        return NOTHING;
    }
    if (PyTuple_Check(object)) {
        add_word(journal, &PyTuple_GET_ITEM(object, index));
        return ALIVE;
    }
    if (PyList_Check(object)) {
        add_word(journal, &((PyListObject *)object)->ob_item);
        add_word(journal, &((PyListObject *)object)->ob_item[index]);
        return ALIVE;
    }
    return NOTHING;
}

static Known reads_instance(GuardJournal *journal, Reached *of)
{
    PyObject **dictionary = needs_class(journal, of) ? instance_dict_address(of->object) : NULL;
    if (dictionary == NULL || *dictionary == NULL) {
        return NOTHING;
    }
    add_word(journal, dictionary);
    return SAME_CLASS; /* whatever is there is a dictionary */
}

/* Where an object keeps an attribute that is a field of it, past no Python code; NULL: no such. */
static PyObject **field_address(PyObject *object, PyObject *name)
{
    if (PyFunction_Check(object)) {
        PyFunctionObject *function = (PyFunctionObject *)object;
        if (PyUnicode_CompareWithASCIIString(name, "__defaults__") == 0) {
            return &function->func_defaults;
        }
        if (PyUnicode_CompareWithASCIIString(name, "__kwdefaults__") == 0) {
            return &function->func_kwdefaults;
        }
    }
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(object), name);
    if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type) ||
        Py_TYPE(object)->tp_getattro != PyObject_GenericGetAttr) {
        return NULL;
    }
    PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
    bool plain = member->type == T_OBJECT || member->type == T_OBJECT_EX;
    return plain ? (PyObject **)((char *)object + member->offset) : NULL;
}

/* Only of objects whose class cannot change what the name means. */
static Known reads_field(GuardJournal *journal, Reached *of, PyObject *name)
{
    PyObject **field = field_address(of->object, name);
    if (field == NULL || *field == NULL ||
        PyType_HasFeature(Py_TYPE(of->object), Py_TPFLAGS_HEAPTYPE)) {
        return NOTHING;
    }
    add_word(journal, &of->object->ob_type);
    add_word(journal, field);
    return ALIVE;
}

/* What is known of the object that a step loads, given what is known of its base; NOTHING: it has
   to be loaded each time. */
static Known follow_step(GuardJournal *journal, const GuardStep *step, Reached *base)
{
    switch (step->reads) {
    case READS_DICTIONARY:
        return reads_dictionary(journal, base) ? SAME_OBJECT : NOTHING;
    case READS_CLASS:
        return reads_class(journal, base) ? SAME_OBJECT : NOTHING;
    case READS_INSTANCE:
        return reads_instance(journal, base);
    case READS_ITEM:
        return reads_item(journal, base, step->number);
    case READS_TYPE:
        add_word(journal, &base->object->ob_type);
        return SAME_CLASS; /* whatever is there is a class */
    case READS_FIELD:
        return reads_field(journal, base, step->operand);
    case READS_CELL:
        if (!PyCell_Check(base->object) || !needs_class(journal, base)) {
            return NOTHING;
        }
        add_word(journal, &((PyCellObject *)base->object)->ob_ref);
        return ALIVE;
    default:
        return NOTHING;
    }
}

/* Whether what a test expects is still there, where it is held weakly. */
static void expects_alive(GuardJournal *journal, const GuardTest *test)
{
    if (test->weak) {
        add_word(journal, &((PyWeakReference *)test->expected)->wr_object);
    }
}

static bool is_constant(PyObject *object)
{
    if (!PyTuple_CheckExact(object)) {
        return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
               PyFloat_CheckExact(object) || PyComplex_CheckExact(object) ||
               PyUnicode_CheckExact(object) || PyBytes_CheckExact(object);
    }
    bool constant = true;
    for (Py_ssize_t i = 0; constant && i < PyTuple_GET_SIZE(object); i++) {
        constant = is_constant(PyTuple_GET_ITEM(object, i));
    }
    return constant;
}

/* Whether the outcome of a test that holds follows from words, and from its own run where it is one
   of a tensor. */
static bool follow_test(GuardJournal *journal, GuardTest *test, Reached *of)
{
    PyObject *object = of->object;
    switch (test->reads) {
    case READS_ADDRESS:
        return true;
    case READS_IDENTITY:
        expects_alive(journal, test);
        of->known = Py_MAX(of->known, SAME_OBJECT);
        return true;
    case READS_TYPE:
        add_word(journal, &object->ob_type);
        expects_alive(journal, test);
        of->known = Py_MAX(of->known, SAME_CLASS);
        return true;
    case READS_CONSTANT:
        return of->known >= SAME_OBJECT && is_constant(object);
    case READS_DICTIONARY:
        return reads_dictionary(journal, of);
    case READS_LENGTH:
        return reads_length(journal, of);
    case READS_CLASS:
        return reads_class(journal, of);
    case READS_CODE:
        if (!PyFunction_Check(object) || !needs_class(journal, of)) {
            return false;
        }
        add_word(journal, &((PyFunctionObject *)object)->func_code);
        expects_alive(journal, test);
        return true;
    case READS_TENSOR:
        journal->tensors[journal->tensor_count++] = (TensorTest){test, object};
        return tensor_access.key_set_offset >= 0 && torch_library.requires_grad != NULL;
    default:
        return false;
    }
}

/* Whether an argument is likely to be the same object in the next call. */
static bool is_lasting(PyObject *object)
{
    return !tensor_access_is_tensor(object) && instance_dict_address(object) != NULL;
}

/* Reach the object of a root; leaves it NULL when it has to be tested each time. */
static void reach_root(GuardJournal *journal, GuardNode *node, const GuardContext *context,
                       Reached *reached)
{
    GuardStep *step = &node->step;
    if (step->reads != READS_IDENTITY) {
        return;
    }
    PyObject *object = step->load(step, NULL, context);
    if (object == NULL || (step->from_local && !is_lasting(object))) {
        Py_XDECREF(object);
        return;
    }
    Known known = ALIVE;
    if (step->operand == NULL) {
        journal->roots[journal->root_count++] = (Root){step, object};
    } else { /* a constant, which may be held weakly */
        known = SAME_OBJECT;
        if (PyWeakref_CheckRef(step->operand)) {
            add_word(journal, &((PyWeakReference *)step->operand)->wr_object);
        }
    }
    *reached = (Reached){object, known, 0};
}

static void reach_below(GuardJournal *journal, GuardNode *node, const GuardContext *context,
                        Reached *base, Reached *reached)
{
    if (base->object == NULL) {
        reached->depth = base->depth + 1;
        return;
    }
    Known known = follow_step(journal, &node->step, base);
    PyObject *object = known > NOTHING ? node->step.load(&node->step, base->object, context) : NULL;
    *reached = (Reached){object, known, 0};
}

/* Whether the outcome of all tests of a node follows. */
static bool follow_tests(GuardJournal *journal, GuardProgram *program, GuardNode *node,
                         Reached *reached)
{
    for (Py_ssize_t i = node->first_test; i < node[1].first_test; i++) {
        if (!follow_test(journal, &program->tests[i], reached)) {
            return false;
        }
    }
    return true;
}

/* Follow one node, as far as words go. False: the journal cannot be used. */
static bool write_node(GuardJournal *journal, GuardProgram *program, const GuardContext *context,
                       Py_ssize_t index, Reached *all)
{
    GuardNode *node = &program->nodes[index];
    Reached *reached = &all[index], *base = node->parent < 0 ? NULL : &all[node->parent];
    if (base == NULL) {
        reach_root(journal, node, context, reached);
    } else {
        reach_below(journal, node, context, base, reached);
    }
    Py_ssize_t tensor_count = journal->tensor_count;
    if (reached->object != NULL && follow_tests(journal, program, node, reached)) {
        Py_ssize_t end = node[1].first_test;
        return guard_tests_run(program, node->first_test, end, reached->object, &journal->met,
                               NULL);
    }
    journal->tensor_count = tensor_count;
    Py_CLEAR(reached->object);
    PyObject *held = base != NULL ? base->object : NULL;
    journal->fresh[journal->fresh_count++] = (FreshNode){node, held, reached->depth};
    return true;
}

static void journal_free(GuardJournal *journal)
{
    if (journal == NULL || --journal->users > 0) {
        return;
    }
    PyMem_Free(journal->roots);
    PyMem_Free(journal->words);
    PyMem_Free(journal->tensors);
    PyMem_Free(journal->fresh);
    PyMem_Free(journal->met.table);
    PyMem_Free(journal);
}

static GuardJournal *journal_new(GuardProgram *program)
{
    GuardJournal *journal = PyMem_Calloc(1, sizeof *journal);
    if (journal == NULL) {
        return NULL;
    }
    size_t nodes = (size_t)program->node_count, tests = (size_t)program->test_count;
    journal->users = 1;
    journal->roots = PyMem_Calloc(nodes + 1, sizeof *journal->roots);
    journal->words = PyMem_Calloc(MOST_WORDS * (nodes + tests) + 1, sizeof *journal->words);
    journal->tensors = PyMem_Calloc(tests + 1, sizeof *journal->tensors);
    journal->fresh = PyMem_Calloc(nodes + 1, sizeof *journal->fresh);
    bool met = guard_met_open(program, &journal->met, NULL, 0);
    if (!met || !journal->roots || !journal->words || !journal->tensors || !journal->fresh) {
        journal_free(journal);
        return NULL;
    }
    return journal;
}

/* Give back what was not filled; the objects met are known by their addresses alone. */
static void journal_shrink(GuardJournal *journal, GuardProgram *program)
{
#define SHRINK(field, count)                                                                       \
    journal->field = PyMem_Realloc(journal->field, ((size_t)(count) + 1) * sizeof *journal->field)
    SHRINK(roots, journal->root_count);
    SHRINK(words, journal->word_count);
    SHRINK(tensors, journal->tensor_count);
    SHRINK(fresh, journal->fresh_count);
#undef SHRINK
    for (size_t i = 0; i < program->same_slots; i++) {
        Py_XDECREF(journal->met.same[i]); /* held where it was met: this frees nothing */
    }
}

/* A journal of a check of `context`; NULL when it would be of no use, or memory is short. */
static GuardJournal *compose(GuardProgram *program, const GuardContext *context)
{
    GuardJournal *journal = journal_new(program);
    Reached *all = PyMem_Calloc((size_t)program->node_count + 1, sizeof *all);
    bool written = journal != NULL && all != NULL;
    for (Py_ssize_t i = 0; written && i < program->node_count; i++) {
        written = write_node(journal, program, context, i, all);
    }
    for (Py_ssize_t i = 0; all != NULL && i < program->node_count; i++) {
        Py_XDECREF(all[i].object);
    }
    PyMem_Free(all);
    if (journal != NULL) {
        journal_shrink(journal, program);
    }
    if (!written || journal->word_count < FEWEST_WORDS) {
        journal_free(journal);
        return NULL;
    }
    return journal;
}

static void insert(GuardProgram *program, GuardJournal *journal)
{
    if (program->journal_count == GUARD_JOURNALS) {
        journal_free(program->journals[--program->journal_count]);
    }
    memmove(program->journals + 1, program->journals,
            (size_t)program->journal_count * sizeof *program->journals);
    program->journals[0] = journal;
    program->journal_count++;
}

/* Each full check earns credit, so that objects which change at every call do not cost a journal
   each. */
void guard_journal_write(GuardProgram *program, const GuardContext *context)
{
    program->journal_credit = Py_MIN(program->journal_credit + 1, GUARD_JOURNAL_CREDIT);
    if (program->journal_credit < WRITE_COST) {
        return;
    }
    program->journal_credit -= WRITE_COST;
    GuardJournal *journal = compose(program, context);
    if (journal != NULL) {
        insert(program, journal);
    }
}

/* Asking -----------------------------------------------------------------------------------------
 */

static bool roots_fit(const GuardJournal *journal, const GuardContext *context)
{
    for (Py_ssize_t i = 0; i < journal->root_count; i++) {
        const Root *root = &journal->roots[i];
        PyObject *object = root->step->load(root->step, NULL, context);
        Py_XDECREF(object); /* the call holds it */
        if (object != root->object) {
            return false;
        }
    }
    return true;
}

static bool words_are_unchanged(const GuardJournal *journal)
{
    const Word *end = journal->words + journal->word_count;
    for (const Word *word = journal->words; word < end; word++) {
        if (*(const uint64_t *)word->address != word->expected) {
            return false;
        }
    }
    return true;
}

static bool tensors_hold(const GuardJournal *journal, MetObjects *met)
{
    for (Py_ssize_t i = 0; i < journal->tensor_count; i++) {
        GuardTest *test = journal->tensors[i].test;
        if (!test->check(test, journal->tensors[i].object, met)) {
            return false;
        }
    }
    return true;
}

static bool run_fresh(GuardProgram *program, const GuardJournal *journal,
                      const GuardContext *context, MetObjects *met)
{
    GuardPath path = {.used = 0};
    bool holds = true;
    for (Py_ssize_t i = 0; holds && i < journal->fresh_count; i++) {
        const FreshNode *fresh = &journal->fresh[i];
        PyObject *base = fresh->depth > 0 ? path.values[fresh->depth - 1] : fresh->base;
        holds = guard_node_run(program, fresh->node, fresh->depth, base, context, met, &path, NULL);
    }
    guard_path_cut(&path, 0);
    return holds;
}

/* These may run user code: what they start from is held, so that it cannot go away meanwhile. */
static bool fresh_nodes_hold(GuardProgram *program, const GuardJournal *journal,
                             const GuardContext *context, MetObjects *met)
{
    for (Py_ssize_t i = 0; i < journal->fresh_count; i++) {
        Py_XINCREF(journal->fresh[i].base);
    }
    bool holds = run_fresh(program, journal, context, met);
    for (Py_ssize_t i = 0; i < journal->fresh_count; i++) {
        Py_XDECREF(journal->fresh[i].base);
    }
    return holds;
}

/* What the words leave open. */
static bool rest_holds(GuardProgram *program, const GuardJournal *journal,
                       const GuardContext *context)
{
    MetObject stack[GUARD_STACK_SLOTS];
    MetObjects met;
    if (!guard_met_open(program, &met, stack, sizeof stack)) {
        return false;
    }
    met.before = &journal->met;
    bool holds = tensors_hold(journal, &met) && fresh_nodes_hold(program, journal, context, &met);
    guard_met_close(program, &met, stack);
    return holds;
}

static void drop(GuardProgram *program, int index)
{
    GuardJournal *journal = program->journals[index];
    program->journal_count--;
    memmove(program->journals + index, program->journals + index + 1,
            (size_t)(program->journal_count - index) * sizeof *program->journals);
    journal_free(journal);
}

static void move_to_front(GuardProgram *program, int index)
{
    GuardJournal *journal = program->journals[index];
    memmove(program->journals + 1, program->journals, (size_t)index * sizeof *program->journals);
    program->journals[0] = journal;
}

JournalAnswer guard_journal_ask(GuardProgram *program, const GuardContext *context)
{
    for (int i = 0; i < program->journal_count; i++) {
        GuardJournal *journal = program->journals[i];
        if (!roots_fit(journal, context)) {
            continue;
        }
        if (!words_are_unchanged(journal)) {
            drop(program, i);
            return JOURNAL_SILENT;
        }
        move_to_front(program, i);
        journal->users++;
        bool holds = rest_holds(program, journal, context);
        journal_free(journal);
        return holds ? JOURNAL_HOLDS : JOURNAL_FAILS;
    }
    return JOURNAL_SILENT;
}

void guard_journal_drop_all(GuardProgram *program)
{
    while (program->journal_count > 0) {
        drop(program, program->journal_count - 1);
    }
}
