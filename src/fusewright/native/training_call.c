/* TrainingCall: runs a compiled forward graph, and gives its outputs their histories. */
#include "training_call.h"

#include <stdbool.h>
#include <stddef.h>

#include "call_plan.h"
#include "history.h"
#include "tensor_access.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *forward;      /* takes one list of inputs, gives a tuple */
    PyObject *histories;    /* a tuple */
    PyObject *without_base; /* from an output that is a view to one that is none */
    PyObject
        *add_otherwise; /* given inputs and outputs, says whether it added histories; or None */
    PyObject *measure;  /* called with the inputs and the outputs, once; or None */
    Py_ssize_t output_count;
} TrainingCall;

/* Run the forward graph: a plan takes inputs as they come, others one list. */
static PyObject *run_forward(const TrainingCall *self, PyObject *const *inputs, Py_ssize_t count)
{
    bool is_list = count == 1 && PyList_CheckExact(inputs[0]);
    if (is_list || Py_IS_TYPE(self->forward, &CallPlan_Type)) {
        return PyObject_Vectorcall(self->forward, inputs, (size_t)count, NULL);
    }
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyList_SET_ITEM(list, i, Py_NewRef(inputs[i]));
    }
    PyObject *outputs = list == NULL ? NULL : PyObject_CallOneArg(self->forward, list);
    Py_XDECREF(list);
    return outputs;
}

/* What the forward graph computes, without a history, in a new list. */
static PyObject *forward_outputs(const TrainingCall *self, PyObject *inputs)
{
    torch_library.set_grad_mode(false);
    PyObject *answer = run_forward(self, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs));
    PyObject *outputs = answer == NULL ? NULL : PySequence_List(answer);
    for (Py_ssize_t i = 0; outputs != NULL && i < self->output_count; i++) {
        PyObject *output = PyList_GetItem(outputs, i); /* a view here could not be written to */
        bool is_own = output != NULL && tensor_access_is_tensor(output) &&
                      torch_library.is_view != NULL &&
                      !torch_library.is_view(tensor_access_handle(output));
        PyObject *own = is_own ? Py_NewRef(output) : NULL;
        if (output == NULL ||
            (own == NULL && (own = PyObject_CallOneArg(self->without_base, output)) == NULL)) {
            Py_CLEAR(outputs);
        } else {
            PyList_SetItem(outputs, i, own);
        }
    }
    torch_library.set_grad_mode(true);
    Py_XDECREF(answer);
    return outputs;
}

static int measure_once(TrainingCall *self, PyObject *inputs, PyObject *outputs)
{
    if (self->measure == Py_None) {
        return 0;
    }
    PyObject *measure = self->measure;
    self->measure = Py_NewRef(Py_None);
    PyObject *done = PyObject_CallFunctionObjArgs(measure, inputs, outputs, NULL);
    Py_DECREF(measure);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int add_histories(const TrainingCall *self, PyObject *inputs, PyObject *outputs)
{
    if (self->add_otherwise != Py_None) {
        PyObject *answer = PyObject_CallFunctionObjArgs(self->add_otherwise, inputs, outputs, NULL);
        int added = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        if (added != 0) {
            return Py_MIN(added, 0);
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->histories); i++) {
        if (history_add(PyTuple_GET_ITEM(self->histories, i), inputs, outputs) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The outputs with their histories: a new list. */
static PyObject *call_with_gradients(TrainingCall *self, PyObject *inputs)
{
    PyObject *outputs = forward_outputs(self, inputs);
    if (outputs != NULL &&
        (add_histories(self, inputs, outputs) < 0 || measure_once(self, inputs, outputs) < 0)) {
        Py_CLEAR(outputs);
    }
    return outputs;
}

/* The arguments, or the items of one list, which is cleared: a new tuple. */
static PyObject *take_inputs(PyObject *const *args, Py_ssize_t count)
{
    if (count == 1 && PyList_CheckExact(args[0])) {
        PyObject *inputs = PyList_AsTuple(args[0]);
        if (inputs != NULL && PyList_SetSlice(args[0], 0, PY_SSIZE_T_MAX, NULL) < 0) {
            Py_CLEAR(inputs);
        }
        return inputs;
    }
    PyObject *inputs = PyTuple_New(count);
    for (Py_ssize_t i = 0; inputs != NULL && i < count; i++) {
        PyTuple_SET_ITEM(inputs, i, Py_NewRef(args[i]));
    }
    return inputs;
}

static PyObject *TrainingCall_vectorcall(PyObject *object, PyObject *const *args, size_t flags,
                                         PyObject *names)
{
    TrainingCall *self = (TrainingCall *)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "a compiled graph takes no arguments by name");
        return NULL;
    }
    PyObject *outputs, *results = NULL;
    if (!torch_library.grad_mode_is_enabled()) { /* the same graph, without a history */
        outputs = run_forward(self, args, count);
    } else {
        PyObject *inputs = take_inputs(args, count);
        outputs = inputs == NULL ? NULL : call_with_gradients(self, inputs);
        Py_XDECREF(inputs);
    }
    if (outputs != NULL && PySequence_Size(outputs) > self->output_count) {
        Py_SETREF(outputs, PySequence_GetSlice(outputs, 0, self->output_count));
    }
    if (outputs != NULL) {
        results = PySequence_Tuple(outputs);
        Py_DECREF(outputs);
    }
    return results;
}

static PyObject *TrainingCall_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"forward",       "histories", "outputs", "without_base",
                            "add_otherwise", "measure",   NULL};
    PyObject *forward, *histories, *without_base, *add_otherwise, *measure;
    Py_ssize_t outputs;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!nOOO:TrainingCall", names, &forward,
                                     &PyTuple_Type, &histories, &outputs, &without_base,
                                     &add_otherwise, &measure)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(histories); i++) {
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(histories, i), &History_Type)) {
            PyErr_SetString(PyExc_TypeError, "a TrainingCall takes a tuple of histories");
            return NULL;
        }
    }
    TrainingCall *self = (TrainingCall *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = TrainingCall_vectorcall;
        self->forward = Py_NewRef(forward);
        self->histories = Py_NewRef(histories);
        self->without_base = Py_NewRef(without_base);
        self->add_otherwise = Py_NewRef(add_otherwise);
        self->measure = Py_NewRef(measure);
        self->output_count = outputs;
    }
    return (PyObject *)self;
}

static int TrainingCall_traverse(PyObject *object, visitproc visit, void *arg)
{
    TrainingCall *self = (TrainingCall *)object;
    Py_VISIT(self->forward);
    Py_VISIT(self->histories);
    Py_VISIT(self->without_base);
    Py_VISIT(self->add_otherwise);
    Py_VISIT(self->measure);
    return 0;
}

static int TrainingCall_clear(PyObject *object)
{
    TrainingCall *self = (TrainingCall *)object;
    Py_CLEAR(self->forward);
    Py_CLEAR(self->histories);
    Py_CLEAR(self->without_base);
    Py_CLEAR(self->add_otherwise);
    Py_CLEAR(self->measure);
    return 0;
}

static void TrainingCall_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    TrainingCall_clear(object);
    Py_TYPE(object)->tp_free(object);
}

PyDoc_STRVAR(
    TrainingCall_doc,
    "TrainingCall(forward, histories, outputs, without_base, add_otherwise, measure)\n--\n\n"
    "`call(*inputs)`, or `call([*inputs])`, which clears the list, gives the first `outputs`\n"
    "values that `forward([*inputs])` computes, as a tuple: where gradients are on, with their\n"
    "histories.\n\n"
    "`without_base(output)` gives a tensor of the same memory that autograd holds for no view.\n"
    "`add_otherwise`, unless it is None, is given the inputs and the list of outputs, which it\n"
    "may give histories instead; it says whether it has. `measure`, unless it is None, is called\n"
    "once, with the inputs and all values of the first call with gradients.");

PyTypeObject TrainingCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.TrainingCall",
    .tp_basicsize = sizeof(TrainingCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = TrainingCall_doc,
    .tp_new = TrainingCall_new,
    .tp_traverse = TrainingCall_traverse,
    .tp_clear = TrainingCall_clear,
    .tp_dealloc = TrainingCall_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(TrainingCall, vectorcall),
};
