/* CallPlan: a callable that takes a graph's inputs and runs operations on them, without a Python
   statement. It is made of operations by name, whose operands are checked once, here. */
#include "call_plan.h"

#include <frameobject.h>
#include <stddef.h>
#include <string.h>

#include "plan_results.h"
#include "plan_slots.h"
#include "profiling.h"

/* Values of a call that need no more bytes than this live on the C stack. */
#define STACK_BYTES 4096

/* Calls -------------------------------------------------------------------------------------- */

/* Add to an exception's traceback the line of the readable twin that does what failed. */
static void add_traceback(const CallPlan *plan, int64_t line)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const char *file = PyUnicode_AsUTF8(plan->file);
    PyCodeObject *code = file == NULL ? NULL : PyCode_NewEmpty(file, "call", (int)line);
    PyFrameObject *frame =
        code == NULL ? NULL : PyFrame_New(PyThreadState_Get(), code, plan->variables, NULL);
    PyErr_Clear(); /* the first exception counts, with a line less */
    PyErr_Restore(type, value, traceback);
    if (frame != NULL) {
        PyTraceBack_Here(frame);
    }
    Py_XDECREF(code);
    Py_XDECREF(frame);
}

/* Copy the inputs to the first slots. */
static int take_inputs(const CallPlan *plan, PyObject *const *inputs, Py_ssize_t count,
                       PlanSlot *slots)
{
    if (count != plan->input_count) {
        PyErr_Format(PyExc_ValueError, "a compiled graph takes %zd inputs; %zd given",
                     plan->input_count, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        plan_slot_set(&slots[i], Py_NewRef(inputs[i]));
    }
    return 0;
}

/* The inputs are the arguments; or the items of one list, which is cleared. */
static int take_arguments(const CallPlan *plan, PyObject *const *args, Py_ssize_t count,
                          PlanSlot *slots)
{
    if (count != 1 || !PyList_CheckExact(args[0])) {
        return take_inputs(plan, args, count, slots);
    }
    PyListObject *list = (PyListObject *)args[0];
    if (take_inputs(plan, list->ob_item, PyList_GET_SIZE(list), slots) < 0) {
        return -1;
    }
    return PyList_SetSlice(args[0], 0, plan->input_count, NULL);
}

/* The operation behind the one at `at`, and behind `skipped` more. */
static const int64_t *behind(const int64_t *at, const int64_t *end, int skipped)
{
    at += at[LENGTH];
    for (; skipped > 0 && at < end; skipped--) {
        at += at[LENGTH];
    }
    return at;
}

static int run_operations(PlanFrame *frame)
{
    const CallPlan *plan = frame->plan;
    const int64_t *end = plan->words + plan->word_count;
    for (const int64_t *at = plan->words; at < end;) {
        int skipped = plan_operations[at[OPERATION]].run(frame, at + HEADER_WORDS);
        if (skipped < 0) {
            add_traceback(plan, at[LINE]);
            return -1;
        }
        at = behind(at, end, skipped);
    }
    return 0;
}

/* The same, where a profiler is told of each kernel and library call. */
static int run_told(PlanFrame *frame)
{
    const CallPlan *plan = frame->plan;
    const int64_t *end = plan->words + plan->word_count;
    for (const int64_t *at = plan->words; at < end;) {
        const PlanOperation *operation = &plan_operations[at[OPERATION]];
        PyObject *guard = NULL;
        if (operation->is_told) { /* a kernel is the first operand of its launch */
            int64_t place = operation->form[0] == 'k' ? at[HEADER_WORDS] : NOTHING;
            PyObject *kernel = place == NOTHING ? NULL : plan->constants[~place].object;
            guard = profiling_begin(plan->file, at[LINE], kernel);
        }
        int skipped = operation->run(frame, at + HEADER_WORDS);
        profiling_end(guard);
        if (skipped < 0) {
            add_traceback(plan, at[LINE]);
            return -1;
        }
        at = behind(at, end, skipped);
    }
    return 0;
}

/* Run in `memory`, which is large enough for all values. */
static PyObject *call_in(const CallPlan *plan, PyObject *const *args, Py_ssize_t count,
                         const PlanResults *results, void *memory)
{
    PlanFrame frame = {.plan = plan, .slots = memory, .result = NULL, .results = results};
    frame.numbers = (int64_t *)(frame.slots + plan->slot_count);
    frame.scratch = (void **)(frame.numbers + plan->number_count);
    memset(frame.slots, 0, (size_t)plan->slot_count * sizeof *frame.slots);
    memcpy(frame.numbers, plan->numbers, (size_t)plan->number_count * sizeof *frame.numbers);
    if (take_arguments(plan, args, count, frame.slots) < 0 ||
        (profiling_is_on() ? run_told(&frame) : run_operations(&frame)) < 0) {
        Py_CLEAR(frame.result);
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* what dies may run code */
    for (Py_ssize_t i = 0; i < plan->slot_count; i++) {
        plan_slot_clear(&frame.slots[i]);
    }
    PyErr_Restore(type, value, traceback);
    return frame.result;
}

PyObject *call_plan_run(CallPlan *plan, PyObject *const *args, Py_ssize_t count,
                        const PlanResults *results)
{
    size_t bytes = (size_t)plan->slot_count * sizeof(PlanSlot) +
                   ((size_t)plan->number_count + (size_t)plan->widest + 1) * sizeof(int64_t);
    PyObject *result;
    Py_INCREF(plan); /* the program may let go of it while it runs */
    if (bytes <= STACK_BYTES) {
        _Alignas(PlanSlot) char memory[STACK_BYTES];
        result = call_in(plan, args, count, results, memory);
    } else {
        void *memory = PyMem_Malloc(bytes);
        result = memory == NULL ? PyErr_NoMemory() : call_in(plan, args, count, results, memory);
        PyMem_Free(memory);
    }
    Py_DECREF(plan);
    return result;
}

static PyObject *call_plan(PyObject *object, PyObject *const *args, size_t flagged_count,
                           PyObject *names)
{
    if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "a compiled graph takes no arguments by name");
        return NULL;
    }
    return call_plan_run((CallPlan *)object, args, PyVectorcall_NARGS(flagged_count), NULL);
}

/* Making ------------------------------------------------------------------------------------- */

/* Whether an operand may be what a letter of a form says. */
static bool is_operand(const CallPlan *plan, char letter, int64_t word)
{
    bool is_constant = word < 0 && ~word < plan->constant_count;
    switch (letter) {
    case 'd':
        return word == NOTHING || (word >= 0 && word < plan->slot_count);
    case 'o':
        return word >= 0 && word < plan->slot_count;
    case 's':
        return is_constant || (word >= 0 && word < plan->slot_count);
    case 'q':
        return word == NOTHING || is_constant;
    case 'k':
        return is_constant;
    case 'n':
    case 'r':
        return word >= 0 && word < plan->number_count;
    case '#':
        return word >= 0 && word <= plan->word_count;
    default:
        return letter == 'i';
    }
}

/* Whether `count` operands are those of a form. */
static bool fits(const CallPlan *plan, const char *form, const int64_t *operands, Py_ssize_t count)
{
    const int64_t *at = operands, *end = operands + count;
    int64_t times = 0;
    for (const char *letter = form; *letter != 0; letter++) {
        bool repeated = *letter == '*';
        letter += repeated;
        for (int64_t i = 0; i < (repeated ? times : 1); i++) {
            if (at == end || !is_operand(plan, *letter, *at)) {
                return false;
            }
            times = *letter == '#' ? *at : times;
            at++;
        }
    }
    return at == end;
}

static int64_t find_operation(PyObject *name)
{
    for (Py_ssize_t i = 0; i < plan_operation_count; i++) {
        if (PyUnicode_CompareWithASCIIString(name, plan_operations[i].name) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "no operation of a plan is called %R", name);
    return -1;
}

/* A call has names, behind its arguments, for the last of them only, and no more than there are; a
   product for its result, behind that. */
static bool has_names_it_can_pass(const CallPlan *plan, const int64_t *words)
{
    const char *form = plan_operations[words[OPERATION]].form;
    bool is_call = strchr(form, 'q') != NULL, is_product = form[strlen(form) - 1] == 'k';
    const int64_t *count = words + HEADER_WORDS + strcspn(form, "#");
    int64_t place = is_call ? count[1 + *count] : words[words[LENGTH] - 1];
    if (!(is_call || is_product) || place == NOTHING) {
        return true;
    }
    PyObject *names = plan->constants[~place].object;
    if (!PyTuple_Check(names)) {
        return false;
    }
    return is_call ? PyTuple_GET_SIZE(names) <= *count : PyTuple_GET_SIZE(names) == 1;
}

/* Write `(name, line, operands)` at `words`. */
static int pack_operation(CallPlan *plan, PyObject *operation, int64_t *words)
{
    PyObject *operands = PyTuple_GET_ITEM(operation, 2);
    Py_ssize_t count = PyTuple_GET_SIZE(operands);
    words[OPERATION] = find_operation(PyTuple_GET_ITEM(operation, 0));
    words[LINE] = PyLong_AsLongLong(PyTuple_GET_ITEM(operation, 1));
    words[LENGTH] = HEADER_WORDS + count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *operand = PyTuple_GET_ITEM(operands, i);
        words[HEADER_WORDS + i] = operand == Py_None ? NOTHING : PyLong_AsLongLong(operand);
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    const char *form = plan_operations[words[OPERATION]].form;
    if (!fits(plan, form, words + HEADER_WORDS, count) || !has_names_it_can_pass(plan, words)) {
        PyErr_Format(PyExc_ValueError, "an operation of a plan has other operands than %s: %R",
                     form, operation);
        return -1;
    }
    return 0;
}

static bool is_operation(PyObject *operation)
{
    return PyTuple_Check(operation) && PyTuple_GET_SIZE(operation) == 3 &&
           PyUnicode_Check(PyTuple_GET_ITEM(operation, 0)) &&
           PyTuple_Check(PyTuple_GET_ITEM(operation, 2));
}

static int pack_operations(CallPlan *plan, PyObject *operations)
{
    Py_ssize_t words = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operations); i++) {
        PyObject *operation = PyTuple_GET_ITEM(operations, i);
        if (!is_operation(operation)) {
            PyErr_SetString(PyExc_TypeError, "operations are (name, line, operands)");
            return -1;
        }
        Py_ssize_t count = PyTuple_GET_SIZE(PyTuple_GET_ITEM(operation, 2));
        plan->widest = Py_MAX(plan->widest, count);
        words += HEADER_WORDS + count;
    }
    plan->words = PyMem_New(int64_t, (size_t)words);
    if (plan->words == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    plan->word_count = words;
    int64_t *at = plan->words;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operations); i++) {
        if (pack_operation(plan, PyTuple_GET_ITEM(operations, i), at) < 0) {
            return -1;
        }
        at += at[LENGTH];
    }
    return 0;
}

static int keep_numbers(CallPlan *plan, PyObject *numbers)
{
    Py_ssize_t count = PyTuple_GET_SIZE(numbers);
    plan->numbers = PyMem_New(int64_t, (size_t)count);
    if (plan->numbers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    plan->number_count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        plan->numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int keep_constants(CallPlan *plan, PyObject *constants)
{
    Py_ssize_t count = PyTuple_GET_SIZE(constants);
    plan->constants = PyMem_Calloc((size_t)count, sizeof *plan->constants);
    if (plan->constants == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        plan_slot_set(&plan->constants[i], Py_NewRef(PyTuple_GET_ITEM(constants, i)));
        plan->constant_count = i + 1;
    }
    return 0;
}

static PyObject *CallPlan_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"operations", "inputs",    "slots", "numbers",
                            "constants",  "variables", "file",  NULL};
    PyObject *operations, *numbers, *constants, *variables, *file;
    Py_ssize_t inputs, slots;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!nnO!O!O!U:CallPlan", names, &PyTuple_Type,
                                     &operations, &inputs, &slots, &PyTuple_Type, &numbers,
                                     &PyTuple_Type, &constants, &PyDict_Type, &variables, &file)) {
        return NULL;
    }
    if (torch_library.wrap_tensor == NULL || torch_library.reinterpret == NULL ||
        torch_library.place_in == NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "this torch lacks functions that plans call");
        return NULL;
    }
    if (inputs < 0 || slots < inputs) {
        PyErr_SetString(PyExc_ValueError, "inputs are the first slots: no more than those");
        return NULL;
    }
    CallPlan *plan = (CallPlan *)type->tp_alloc(type, 0);
    if (plan == NULL) {
        return NULL;
    }
    plan->vectorcall = call_plan;
    plan->input_count = inputs;
    plan->slot_count = slots;
    plan->file = Py_NewRef(file);
    plan->variables = Py_NewRef(variables);
    if (keep_numbers(plan, numbers) < 0 || keep_constants(plan, constants) < 0 ||
        pack_operations(plan, operations) < 0) {
        Py_DECREF(plan);
        return NULL;
    }
    return (PyObject *)plan;
}

static int CallPlan_traverse(PyObject *object, visitproc visit, void *arg)
{
    CallPlan *plan = (CallPlan *)object;
    for (Py_ssize_t i = 0; i < plan->constant_count; i++) {
        Py_VISIT(plan->constants[i].object);
    }
    Py_VISIT(plan->variables);
    return 0;
}

static int CallPlan_clear(PyObject *object)
{
    CallPlan *plan = (CallPlan *)object;
    for (Py_ssize_t i = 0; i < plan->constant_count; i++) {
        plan_slot_clear(&plan->constants[i]);
    }
    Py_CLEAR(plan->variables);
    return 0;
}

static void CallPlan_dealloc(PyObject *object)
{
    CallPlan *plan = (CallPlan *)object;
    PyObject_GC_UnTrack(object);
    CallPlan_clear(object);
    Py_XDECREF(plan->file);
    PyMem_Free(plan->words);
    PyMem_Free(plan->numbers);
    PyMem_Free(plan->constants);
    Py_TYPE(object)->tp_free(object);
}

PyDoc_STRVAR(
    CallPlan_doc,
    "CallPlan(operations, inputs, slots, numbers, constants, variables, file)\n--\n\n"
    "`plan(*inputs)`, or `plan([*inputs])`, which clears the list, runs the operations in order,\n"
    "and returns the tuple that the last `return` among them makes.\n\n"
    "An operation is `(name, line, operands)`: its operands are indices of slots, the first of\n"
    "which hold the inputs, of constants as ~index, or of numbers; `numbers` are what these are at\n"
    "first. plan_operations.c has the table. An exception names `file` and the operation's line,\n"
    "in a frame with the globals `variables`. ValueError: an operand that the operation does not\n"
    "take; NotImplementedError: this torch lacks a function that plans call.");

static PyMethodDef CallPlan_methods[] = {
    {"run_into", plan_results_run_into, METH_VARARGS, plan_results_run_into_doc},
    {NULL},
};

PyTypeObject CallPlan_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.CallPlan",
    .tp_basicsize = sizeof(CallPlan),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = CallPlan_doc,
    .tp_new = CallPlan_new,
    .tp_methods = CallPlan_methods,
    .tp_traverse = CallPlan_traverse,
    .tp_clear = CallPlan_clear,
    .tp_dealloc = CallPlan_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CallPlan, vectorcall),
};
