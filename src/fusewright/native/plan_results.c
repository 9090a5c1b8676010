/* Runs a plan so that its results lie in memory of the caller's, as a CUDA graph has to write them
   to the same place each time. Which allocations the results lie in is found in the operations. */
#include "plan_results.h"

#include <string.h>

/* Which of the allocations has these operands; -1: none. */
static Py_ssize_t place_of(const PlanResults *results, const int64_t *operands)
{
    for (Py_ssize_t i = 0; i < results->count; i++) {
        if (results->allocations[i] == operands) {
            return i;
        }
    }
    return -1;
}

PyObject *plan_results_memory(const PlanResults *results, const int64_t *operands)
{
    Py_ssize_t place = results == NULL ? -1 : place_of(results, operands);
    return place < 0 ? NULL : PyList_GET_ITEM(results->memory, place);
}

int plan_results_note(const PlanResults *results, const int64_t *operands, PyObject *tensor)
{
    return tensor == NULL ? -1
                          : PyList_SetItem(results->memory, place_of(results, operands),
                                           Py_NewRef(tensor));
}

static bool is_named(const int64_t *at, const char *name)
{
    return strcmp(plan_operations[at[OPERATION]].name, name) == 0;
}

/* Forget what an operation's written slots held. */
static void forget_written(const int64_t *at, const int64_t **holders)
{
    const int64_t *operand = at + HEADER_WORDS;
    int64_t times = 0;
    for (const char *letter = plan_operations[at[OPERATION]].form; *letter != 0; letter++) {
        bool repeated = *letter == '*';
        letter += repeated;
        for (int64_t i = 0; i < (repeated ? times : 1); i++, operand++) {
            if ((*letter == 'o' || *letter == 'd') && *operand != NOTHING) {
                holders[*operand] = NULL;
            }
            times = *letter == '#' ? *operand : times;
        }
    }
}

/* Follow memory through one operation: `holders` has, by slot, the operands of the allocation that
   what it holds lies in, or NULL. */
static void follow(const int64_t *at, const int64_t **holders)
{
    const int64_t *operands = at + HEADER_WORDS, *holder = NULL;
    bool is_move = is_named(at, "move");
    if (is_named(at, "allocate")) {
        holder = operands;
    } else if (is_move || (is_named(at, "reinterpret") && operands[1] >= 0)) {
        holder = holders[operands[1]];
    }
    forget_written(at, holders);
    if (holder != NULL) {
        holders[operands[0]] = holder;
    }
}

/* Add the allocations that the operands of a `return` lie in, each once. */
static void add_returned(const int64_t *at, const int64_t **holders, PlanResults *results)
{
    const int64_t *operands = at + HEADER_WORDS;
    for (int64_t i = 1; i <= operands[0]; i++) {
        const int64_t *holder = operands[i] < 0 ? NULL : holders[operands[i]];
        if (holder != NULL && place_of(results, holder) < 0) {
            results->allocations[results->count++] = holder;
        }
    }
}

/* Fill `results`, which has room for as many allocations as there are operands. */
static int find(const CallPlan *plan, PlanResults *results)
{
    const int64_t **holders = PyMem_Calloc((size_t)plan->slot_count, sizeof *holders);
    if (holders == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    const int64_t *end = plan->words + plan->word_count;
    for (const int64_t *at = plan->words; at < end; at += at[LENGTH]) {
        if (is_named(at, "return")) {
            add_returned(at, holders, results);
        } else {
            follow(at, holders);
        }
    }
    PyMem_Free(holders);
    return 0;
}

const char plan_results_run_into_doc[] =
    "run_into(inputs, memory, /)\n--\n\n"
    "`plan(inputs)`, whose results lie in `memory`: a list with a place for each allocation that\n"
    "they lie in, which is made as long as that. A tensor there that is laid out as the allocation\n"
    "asks for is used; otherwise the tensor that was allocated takes its place. None stays where\n"
    "nothing was. Results that library calls allocate have no place.";

PyObject *plan_results_run_into(PyObject *object, PyObject *args)
{
    CallPlan *plan = (CallPlan *)object;
    PyObject *inputs, *memory, *answer = NULL;
    if (!PyArg_ParseTuple(args, "O!O!:run_into", &PyList_Type, &inputs, &PyList_Type, &memory)) {
        return NULL;
    }
    PlanResults results = {.allocations = PyMem_New(const int64_t *, (size_t)plan->word_count)};
    if (results.allocations == NULL) {
        return PyErr_NoMemory();
    }
    int refused = find(plan, &results);
    while (refused == 0 && PyList_GET_SIZE(memory) < results.count) {
        refused = PyList_Append(memory, Py_None);
    }
    results.memory = PyList_GetSlice(memory, 0, PY_SSIZE_T_MAX); /* code that runs may change it */
    if (refused == 0 && results.memory != NULL) {
        answer = call_plan_run(plan, &inputs, 1, &results);
    }
    if (answer != NULL && PyList_SetSlice(memory, 0, PY_SSIZE_T_MAX, results.memory) < 0) {
        Py_CLEAR(answer);
    }
    Py_XDECREF(results.memory);
    PyMem_Free(results.allocations);
    return answer;
}
