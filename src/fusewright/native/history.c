/* A node's forward gathers what autograd is to save; its backward takes that and the gradients of
   the outputs, and runs the backward graph, without a Python statement. What is rare is asked of
   History's Python subclass, by methods: `save_specially`, `take_specially`, `take_despite`,
   `check_versions`, `backward_without`, `tangent`, `gradient_strides`, `fail` and
   `differentiable`. */
#include "history.h"

#include <stddef.h>

#include "tensor_access.h"

/* The tuples hold integers, unless another thing is said. A place is the index of an input, or ~
   that of an output. */
typedef struct {
    PyObject_HEAD
    PyObject *apply;     /* of the autograd function */
    PyObject *inputs;    /* indices of those that it leads to */
    PyObject *tangents;  /* by tangent: the place of its output */
    PyObject *numbers;   /* places of the numbers that the backward graph takes first, */
    PyObject *saved;     /* and then of tensors, which autograd saves */
    PyObject *strides;   /* by tangent: a tuple of its strides; None: each call has its own */
    PyObject *backward;  /* what `backward_without` gave last; NULL: nothing yet */
    PyObject *gradients; /* what it was asked for: by tangent None, where absent, or True */
    uint64_t usual_keys; /* the dispatch keys of a gradient that `tangent` left as it was */
    int is_special;      /* the subclass changes what is saved */
    int can_be_repeated; /* nothing is saved that a second backward would miss */
    int checks_versions; /* the subclass checks more than what is saved */
} History;

/* A call in one history, kept by its node. */
typedef struct {
    PyObject_HEAD
    History *history;
    PyObject *inputs; /* a tuple; and a list of outputs. Borrowed; NULL when the call is over */
    PyObject *outputs;
    PyObject *numbers; /* those that are saved: a tuple */
    PyObject *strides; /* by tangent */
    PyObject *special; /* what `take_specially` is to know; NULL: it is not asked */
} HistoryCall;

enum { CALL, TO_SAVE, MATERIALIZE, SAVED, CLEAR, NAME_COUNT };
static PyObject *node_names[NAME_COUNT]; /* of a node's attributes */

/* Forward ------------------------------------------------------------------------------------ */

/* The values at places behind `first`, unless that is NULL: a new tuple. */
static PyObject *values_at(const HistoryCall *call, PyObject *places, PyObject *first)
{
    Py_ssize_t ahead = first != NULL;
    PyObject *values = PyTuple_New(ahead + PyTuple_GET_SIZE(places));
    if (values != NULL && first != NULL) {
        PyTuple_SET_ITEM(values, 0, Py_NewRef(first));
    }
    for (Py_ssize_t i = 0; values != NULL && i < PyTuple_GET_SIZE(places); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i));
        PyObject *value = place >= 0 ? PyTuple_GetItem(call->inputs, place)
                                     : PyList_GetItem(call->outputs, ~place);
        if (value == NULL) {
            Py_CLEAR(values);
        } else {
            PyTuple_SET_ITEM(values, ahead + i, Py_NewRef(value));
        }
    }
    return values;
}

/* The strides that a tensor's gradient has, a new tuple: for a contiguous one, its own. */
static PyObject *gradient_strides(History *history, PyObject *tensor)
{
    TensorHandle handle = tensor_access_handle(tensor);
    int64_t dim, *sizes, *strides, dense = 1;
    bool contiguous = torch_library.get_dim(handle, &dim) == 0 &&
                      torch_library.get_sizes(handle, &sizes) == 0 &&
                      torch_library.get_strides(handle, &strides) == 0;
    for (int64_t i = dim - 1; contiguous && i >= 0; i--) {
        contiguous = strides[i] == dense;
        dense *= sizes[i];
    }
    return contiguous ? tensor_access_extents(strides, dim)
                      : PyObject_CallMethod((PyObject *)history, "gradient_strides", "O", tensor);
}

static PyObject *strides_by_tangent(History *history, PyObject *tangents)
{
    if (history->strides != Py_None) {
        return Py_NewRef(history->strides);
    }
    PyObject *strides = PyTuple_New(PyTuple_GET_SIZE(tangents));
    for (Py_ssize_t i = 0; strides != NULL && i < PyTuple_GET_SIZE(tangents); i++) {
        PyObject *own = gradient_strides(history, PyTuple_GET_ITEM(tangents, i));
        if (own == NULL) {
            Py_CLEAR(strides);
        } else {
            PyTuple_SET_ITEM(strides, i, own);
        }
    }
    return strides;
}

/* What autograd is to save: a new tuple. */
static PyObject *tensors_to_save(HistoryCall *call)
{
    PyObject *tensors = values_at(call, call->history->saved, NULL);
    if (tensors == NULL || !call->history->is_special) {
        return tensors;
    }
    PyObject *history = (PyObject *)call->history;
    PyObject *answer = PyObject_CallMethod(history, "save_specially", "(O)", tensors);
    Py_CLEAR(tensors);
    if (answer != NULL && PyArg_ParseTuple(answer, "OO", &tensors, &call->special)) {
        Py_INCREF(tensors);
        Py_INCREF(call->special);
    }
    Py_XDECREF(answer);
    return tensors;
}

PyObject *history_forward(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    HistoryCall *call = count < 2 ? NULL : (HistoryCall *)args[1];
    if (call == NULL || !Py_IS_TYPE(call, &HistoryCall_Type) || call->outputs == NULL) {
        PyErr_SetString(PyExc_TypeError, "nodes of compiled graphs are made by a TrainingCall");
        return NULL;
    }
    PyObject *tangents = values_at(call, call->history->tangents, NULL), *tensors = NULL;
    if (tangents != NULL &&
        (call->numbers = values_at(call, call->history->numbers, NULL)) != NULL &&
        (call->strides = strides_by_tangent(call->history, tangents)) != NULL) {
        tensors = tensors_to_save(call);
    }
    if (tensors == NULL || PyObject_SetAttr(args[0], node_names[TO_SAVE], tensors) < 0 ||
        PyObject_SetAttr(args[0], node_names[MATERIALIZE], Py_False) < 0 ||
        PyObject_SetAttr(args[0], node_names[CALL], (PyObject *)call) < 0) {
        Py_CLEAR(tangents);
    }
    Py_XDECREF(tensors);
    return tangents;
}

/* Have autograd make the node of a call in a history. Gives the outputs that have it. */
static PyObject *apply(History *history, PyObject *inputs, PyObject *outputs)
{
    HistoryCall *call = (HistoryCall *)PyType_GenericAlloc(&HistoryCall_Type, 0);
    if (call == NULL) {
        return NULL;
    }
    call->history = (History *)Py_NewRef(history);
    call->inputs = inputs;
    call->outputs = outputs;
    PyObject *arguments = values_at(call, history->inputs, (PyObject *)call);
    PyObject *results = arguments == NULL ? NULL : PyObject_Call(history->apply, arguments, NULL);
    Py_XDECREF(arguments);
    call->inputs = call->outputs = NULL;
    Py_DECREF(call);
    return results;
}

int history_add(PyObject *object, PyObject *inputs, PyObject *outputs)
{
    History *history = (History *)object;
    PyObject *results = apply(history, inputs, outputs);
    int refused = results == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; refused == 0 && i < PyTuple_GET_SIZE(history->tangents); i++) {
        Py_ssize_t position = ~PyLong_AsSsize_t(PyTuple_GET_ITEM(history->tangents, i));
        PyObject *result = PyTuple_GetItem(results, i);
        refused = result == NULL ? -1 : PyList_SetItem(outputs, position, Py_NewRef(result));
    }
    Py_XDECREF(results);
    return refused;
}

/* Backward ----------------------------------------------------------------------------------- */

/* The exception that is set, taken away; NULL where it is no RuntimeError, which stays. */
static PyObject *take_runtime_error(void)
{
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        return NULL;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
}

/* The tensors that autograd has saved: a new sequence. It refuses what was written to since. */
static PyObject *saved_tensors(const HistoryCall *call, PyObject *node, PyObject *gradients)
{
    PyObject *history = (PyObject *)call->history;
    if (call->history->can_be_repeated) {
        return PyTuple_New(0);
    }
    PyObject *tensors = PyObject_GetAttr(node, node_names[SAVED]);
    PyObject *error = tensors == NULL ? take_runtime_error() : NULL;
    if (error != NULL) {
        tensors = PyObject_CallMethod(history, "take_despite", "OOO", error, node, gradients);
        Py_DECREF(error);
    }
    if (tensors != NULL && call->special != NULL) {
        PyObject *special =
            PyObject_CallMethod(history, "take_specially", "OO", tensors, call->special);
        Py_SETREF(tensors, special);
    }
    return tensors;
}

/* What `backward_without` gives for the gradients that there are: a new reference to (graph,
   numbers of the tangents that it takes, by input the place of its gradient among what it gives
   and, behind that, the tangents; or None). */
static PyObject *backward_for(History *history, PyObject *gradients)
{
    Py_ssize_t count = PyTuple_GET_SIZE(gradients);
    bool known = history->backward != NULL;
    for (Py_ssize_t i = 0; known && i < count; i++) {
        known = (PyTuple_GET_ITEM(gradients, i) == Py_None) ==
                (PyTuple_GET_ITEM(history->gradients, i) == Py_None);
    }
    if (known) {
        return Py_NewRef(history->backward);
    }
    PyObject *kinds = PyTuple_New(count), *backward = NULL, *run, *tangents, *places;
    for (Py_ssize_t i = 0; kinds != NULL && i < count; i++) {
        bool is_absent = PyTuple_GET_ITEM(gradients, i) == Py_None;
        PyTuple_SET_ITEM(kinds, i, Py_NewRef(is_absent ? Py_None : Py_True));
    }
    if (kinds != NULL) {
        backward = PyObject_CallMethod((PyObject *)history, "backward_without", "(O)", kinds);
    }
    if (backward != NULL && PyArg_ParseTuple(backward, "OO!O!", &run, &PyTuple_Type, &tangents,
                                             &PyTuple_Type, &places)) {
        Py_XSETREF(history->gradients, Py_NewRef(kinds));
        Py_XSETREF(history->backward, Py_NewRef(backward));
    } else {
        Py_CLEAR(backward);
    }
    Py_XDECREF(kinds);
    return backward;
}

/* Whether a gradient can be taken as it is: as `tangent` took the last. */
static bool is_usual(const History *history, PyObject *gradient, PyObject *strides)
{
    int64_t *own, dim = 0;
    TensorHandle handle = tensor_access_handle(gradient);
    bool is_usual = (Py_IS_TYPE(gradient, tensor_access.tensor_type) ||
                     Py_IS_TYPE(gradient, tensor_access.parameter_type)) &&
                    tensor_access_key_set(gradient) == history->usual_keys &&
                    torch_library.get_dim(handle, &dim) == 0 && dim == PyTuple_GET_SIZE(strides) &&
                    torch_library.get_strides(handle, &own) == 0;
    for (int64_t i = 0; is_usual && i < dim; i++) {
        is_usual = own[i] == PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
    }
    return is_usual;
}

/* The tangents that a backward graph takes, as it was traced for them: a new tuple. */
static PyObject *take_tangents(const HistoryCall *call, PyObject *node, PyObject *gradients,
                               PyObject *numbers)
{
    History *history = call->history;
    PyObject *tangents = PyTuple_New(PyTuple_GET_SIZE(numbers));
    for (Py_ssize_t i = 0; tangents != NULL && i < PyTuple_GET_SIZE(numbers); i++) {
        PyObject *number = PyTuple_GET_ITEM(numbers, i), *tangent = NULL;
        PyObject *gradient = PyTuple_GetItem(gradients, PyLong_AsSsize_t(number));
        PyObject *strides =
            gradient == NULL ? NULL : PyTuple_GetItem(call->strides, PyLong_AsSsize_t(number));
        if (strides != NULL && is_usual(history, gradient, strides)) {
            tangent = Py_NewRef(gradient);
        } else if (strides != NULL) {
            tangent = PyObject_CallMethod((PyObject *)history, "tangent", "OOOO", node, number,
                                          gradient, strides);
        }
        if (tangent == NULL) {
            Py_CLEAR(tangents);
            break;
        }
        if (tangent == gradient) {
            history->usual_keys = tensor_access_key_set(gradient);
        }
        PyTuple_SET_ITEM(tangents, i, tangent);
    }
    return tangents;
}

/* None, and the gradient of each input: a new tuple, which autograd takes from a node. */
static PyObject *pick_gradients(PyObject *places, PyObject *results, PyObject *tangents)
{
    Py_ssize_t count = PyTuple_GET_SIZE(places), given = PySequence_Fast_GET_SIZE(results);
    PyObject *picked = PyTuple_New(1 + count);
    for (Py_ssize_t i = -1; picked != NULL && i < count; i++) {
        PyObject *place = i < 0 ? Py_None : PyTuple_GET_ITEM(places, i), *gradient = Py_None;
        if (place != Py_None) {
            Py_ssize_t index = PyLong_AsSsize_t(place);
            gradient = index >= 0 && index < given ? PySequence_Fast_GET_ITEM(results, index)
                                                   : PyTuple_GetItem(tangents, index - given);
        }
        if (gradient == NULL) {
            Py_CLEAR(picked);
        } else {
            PyTuple_SET_ITEM(picked, 1 + i, Py_NewRef(gradient));
        }
    }
    return picked;
}

/* Run the backward graph with `values`, a list of what was saved, which is cleared. */
static PyObject *compute(const HistoryCall *call, PyObject *node, PyObject *values,
                         PyObject *gradients)
{
    PyObject *backward = backward_for(call->history, gradients);
    if (backward == NULL) {
        return NULL;
    }
    PyObject *results = NULL, *picked = NULL;
    PyObject *tangents = take_tangents(call, node, gradients, PyTuple_GET_ITEM(backward, 1));
    if (tangents != NULL &&
        PyList_SetSlice(values, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, tangents) == 0) {
        results = PyObject_CallOneArg(PyTuple_GET_ITEM(backward, 0), values);
    }
    if (results != NULL) {
        Py_SETREF(results, PySequence_Fast(results, "a backward graph gives a tuple"));
    }
    if (results != NULL) {
        picked = pick_gradients(PyTuple_GET_ITEM(backward, 2), results, tangents);
    }
    Py_XDECREF(results);
    Py_XDECREF(tangents);
    Py_DECREF(backward);
    PyObject *error = picked == NULL ? take_runtime_error() : NULL;
    if (error != NULL) {
        picked = PyObject_CallMethod((PyObject *)call->history, "fail", "OO", error, gradients);
        Py_DECREF(error);
    }
    return picked;
}

/* As `compute`, where the gradients may be differentiated again. */
static PyObject *compute_differentiable(const HistoryCall *call, PyObject *node, PyObject *values,
                                        PyObject *gradients)
{
    PyObject *saved = PyList_AsTuple(values);
    if (saved == NULL) {
        return NULL;
    }
    torch_library.set_grad_mode(false);
    PyObject *computed = compute(call, node, values, gradients);
    torch_library.set_grad_mode(true);
    if (computed != NULL) {
        PyObject *result = PyObject_CallMethod((PyObject *)call->history, "differentiable", "OOO",
                                               computed, saved, gradients);
        Py_SETREF(computed, result);
    }
    Py_DECREF(saved);
    return computed;
}

/* Call a method that returns nothing. */
static int tell(PyObject *object, const char *name, PyObject *node, PyObject *gradients)
{
    PyObject *done = PyObject_CallMethod(object, name, "OO", node, gradients);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The gradients that a node gives for those of its outputs. */
static PyObject *run_node(const HistoryCall *call, PyObject *node, PyObject *gradients)
{
    PyObject *history = (PyObject *)call->history, *result = NULL;
    PyObject *tensors = saved_tensors(call, node, gradients);
    PyObject *values = tensors == NULL ? NULL : PySequence_List(call->numbers);
    if (values == NULL || PyList_SetSlice(values, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, tensors) < 0) {
        Py_XDECREF(tensors);
        Py_XDECREF(values);
        return NULL;
    }
    Py_DECREF(tensors); /* `values` alone holds them, unless the graph is retained */
    bool is_refused =
        call->history->checks_versions && tell(history, "check_versions", node, gradients) < 0;
    if (!is_refused && torch_library.grad_mode_is_enabled()) {
        result = compute_differentiable(call, node, values, gradients);
    } else if (!is_refused) {
        PyObject *done = PyObject_CallMethodNoArgs(node, node_names[CLEAR]);
        result = done == NULL ? NULL : compute(call, node, values, gradients);
        Py_XDECREF(done);
    }
    Py_DECREF(values);
    return result;
}

PyObject *history_backward(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    PyObject *call = count < 1 ? NULL : PyObject_GetAttr(args[0], node_names[CALL]);
    if (call == NULL || !Py_IS_TYPE(call, &HistoryCall_Type) ||
        PyTuple_GET_SIZE(((HistoryCall *)call)->strides) != count - 1) {
        Py_XDECREF(call);
        PyErr_SetString(PyExc_TypeError, "a node takes a gradient for each of its outputs");
        return NULL;
    }
    PyObject *gradients = PyTuple_New(count - 1), *result = NULL;
    for (Py_ssize_t i = 1; gradients != NULL && i < count; i++) {
        PyTuple_SET_ITEM(gradients, i - 1, Py_NewRef(args[i]));
    }
    if (gradients != NULL) {
        result = run_node((HistoryCall *)call, args[0], gradients);
        Py_DECREF(gradients);
    }
    Py_DECREF(call);
    return result;
}
/* Types -------------------------------------------------------------------------------------- */

static int History_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static const char *const texts[] = {"call", "to_save", "materialize_grads", "saved_tensors",
                                        "maybe_clear_saved_tensors"};
    static char *names[] = {"apply",   "inputs",     "tangents",        "numbers",         "saved",
                            "strides", "is_special", "can_be_repeated", "checks_versions", NULL};
    History *self = (History *)object;
    PyObject *apply, *inputs, *tangents, *numbers, *saved, *strides;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "OO!O!O!O!Oppp:History", names, &apply, &PyTuple_Type, &inputs,
            &PyTuple_Type, &tangents, &PyTuple_Type, &numbers, &PyTuple_Type, &saved, &strides,
            &self->is_special, &self->can_be_repeated, &self->checks_versions)) {
        return -1;
    }
    if (self->apply != NULL || (strides != Py_None && !PyTuple_Check(strides))) {
        PyErr_SetString(PyExc_TypeError, "a History is made once, with a tuple of strides or None");
        return -1;
    }
    for (int i = 0; i < NAME_COUNT; i++) {
        if (node_names[i] == NULL &&
            (node_names[i] = PyUnicode_InternFromString(texts[i])) == NULL) {
            return -1;
        }
    }
    self->apply = Py_NewRef(apply);
    self->inputs = Py_NewRef(inputs);
    self->tangents = Py_NewRef(tangents);
    self->numbers = Py_NewRef(numbers);
    self->saved = Py_NewRef(saved);
    self->strides = Py_NewRef(strides);
    return 0;
}

static int History_traverse(PyObject *object, visitproc visit, void *arg)
{
    History *self = (History *)object;
    for (PyObject **item = &self->apply; item <= &self->gradients; item++) {
        Py_VISIT(*item);
    }
    return 0;
}

static int History_clear(PyObject *object)
{
    History *self = (History *)object;
    for (PyObject **item = &self->apply; item <= &self->gradients; item++) {
        Py_CLEAR(*item);
    }
    return 0;
}

static void History_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    History_clear(object);
    Py_TYPE(object)->tp_free(object);
}

PyDoc_STRVAR(add_doc,
             "add(inputs, outputs, /)\n--\n\n"
             "Put those of a list of outputs that lead to the inputs, a tuple, in the places\n"
             "of those without a history.");

static PyObject *add(PyObject *object, PyObject *args)
{
    PyObject *inputs, *outputs;
    if (!PyArg_ParseTuple(args, "O!O!:add", &PyTuple_Type, &inputs, &PyList_Type, &outputs) ||
        history_add(object, inputs, outputs) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef History_methods[] = {
    {"add", add, METH_VARARGS, add_doc},
    {NULL},
};

PyDoc_STRVAR(
    History_doc,
    "History(apply, inputs, tangents, numbers, saved, strides, is_special, can_be_repeated,\n"
    "        checks_versions)\n--\n\n"
    "How calls of a compiled graph make nodes for one of the histories of its outputs.\n\n"
    "`apply` is that of an autograd function whose forward is `history_forward`, and whose node's\n"
    "is `history_backward`. `inputs`: indices of the inputs that the history leads to. A place is\n"
    "the index of an input, or ~ that of an output; `tangents` has those of the outputs,\n"
    "`numbers` and `saved` those of what the backward graph takes ahead of the tangents.\n"
    "`strides`: how each tangent is to lie in memory; None where each call is asked. A subclass\n"
    "has the methods that history.c names.");

PyTypeObject History_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.History",
    .tp_basicsize = sizeof(History),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = History_doc,
    .tp_new = PyType_GenericNew,
    .tp_init = History_init,
    .tp_traverse = History_traverse,
    .tp_clear = History_clear,
    .tp_dealloc = History_dealloc,
    .tp_methods = History_methods,
};

static void HistoryCall_dealloc(PyObject *object)
{
    HistoryCall *self = (HistoryCall *)object;
    Py_XDECREF(self->history);
    Py_XDECREF(self->numbers);
    Py_XDECREF(self->strides);
    Py_XDECREF(self->special);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject HistoryCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.HistoryCall",
    .tp_basicsize = sizeof(HistoryCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "What an autograd node of a compiled graph knows of its call, beside what is saved.",
    .tp_dealloc = HistoryCall_dealloc,
};
