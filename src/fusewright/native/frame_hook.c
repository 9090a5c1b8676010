/* The hook proper: who is active on which thread, when the evaluation function is installed, and
   the way of one frame.

   The evaluation function belongs to the whole interpreter, activity to a thread. The function is
   installed while some thread has an active compiler that still waits for frames; a compiler that
   wants its root frame only stops waiting once that frame is reached, so that compiled code then
   runs under the plain interpreter. */
#include "frame_hook.h"

#include <stddef.h>
#include <structmember.h>

/* What one thread is doing. */
typedef struct {
    FrameCompiler *active; /* NULL: the hook is off; kept alive by the `call` that set it */
    PyCodeObject *root;    /* when set, the only code that the compiler wants */
    PyCodeObject *passing; /* the code of an entry about to run: its own frame is not looked up */
    InterpreterFrame *chained; /* the frame given to the evaluator that was there before */
} Activity;

static _Thread_local Activity activity;

static Py_ssize_t waiting; /* activities that hold the hook in place */
static _PyFrameEvalFunction previous_evaluator = _PyEval_EvalFrameDefault;

static PyObject *evaluate_frame(PyThreadState *thread, InterpreterFrame *frame, int throwing);

/* Put the hook in front of whatever evaluator is there. */
static void hook_hold(void)
{
    waiting++;
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (current != evaluate_frame) {
        previous_evaluator = current;
        _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate_frame);
    }
}

/* Take the hook away once nobody waits; an evaluator put in front of it in the meantime stays, and
   chains to it. */
static void hook_release(void)
{
    if (--waiting > 0) {
        return;
    }
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate_frame) {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, previous_evaluator);
    }
}

/* Evaluate a frame as it would be without the hook. An evaluator before the hook may itself chain
   to the hook, when the two were installed in turns by several threads: the frame then comes back,
   and goes to the interpreter. */
static PyObject *evaluate_unhooked(PyThreadState *thread, InterpreterFrame *frame, int throwing)
{
    if (previous_evaluator == _PyEval_EvalFrameDefault || activity.chained == frame) {
        activity.chained = NULL;
        return _PyEval_EvalFrameDefault(thread, frame, throwing);
    }
    activity.chained = frame;
    PyObject *result = previous_evaluator(thread, frame, throwing);
    activity.chained = NULL;
    return result;
}

/* Find or make the entry that stands for a fresh frame, with the hook off. NULL: run the frame as
   it is, or an exception is set. */
static Entry *choose_entry(FrameCompiler *compiler, InterpreterFrame *frame)
{
    CodeRecord *record = frame_compiler_find(compiler, frame_code(frame));
    if (record != NULL) {
        Entry *entry = frame_compiler_find_entry(compiler, frame, record);
        if (entry != NULL) {
            return entry;
        }
        record = frame_compiler_find(compiler, frame_code(frame));
        if (record != NULL && record->closed) {
            return NULL;
        }
    }
    return frame_compiler_compile(compiler, frame);
}

static PyObject *run_entry(PyThreadState *thread, InterpreterFrame *frame, Entry *entry)
{
    if (activity.active != NULL) {
        activity.passing = (PyCodeObject *)entry->flat->func_code;
    }
    PyObject *result = entry_run(entry, frame);
    activity.passing = NULL;
    Py_DECREF(entry);
    frame_release(thread, frame);
    return result;
}

static PyObject *evaluate_wanted(PyThreadState *thread, InterpreterFrame *frame)
{
    Activity before = activity;
    FrameCompiler *compiler = (FrameCompiler *)Py_NewRef(before.active);
    activity = (Activity){0};
    if (before.root != NULL) {
        hook_release();
    }
    Entry *entry = choose_entry(compiler, frame);
    Py_DECREF(compiler);
    if (before.root == NULL) {
        activity = before;
    }
    if (entry != NULL) {
        return run_entry(thread, frame, entry);
    }
    if (PyErr_Occurred()) {
        frame_release(thread, frame);
        return NULL;
    }
    return evaluate_unhooked(thread, frame, 0);
}

static PyObject *evaluate_frame(PyThreadState *thread, InterpreterFrame *frame, int throwing)
{
    if (activity.active == NULL || throwing) {
        return evaluate_unhooked(thread, frame, throwing);
    }
    PyCodeObject *code = frame_code(frame);
    if (activity.passing == code) {
        activity.passing = NULL;
        return evaluate_unhooked(thread, frame, throwing);
    }
    if ((activity.root != NULL && activity.root != code) || !frame_is_plain_call(frame)) {
        return evaluate_unhooked(thread, frame, throwing);
    }
    return evaluate_wanted(thread, frame);
}

/* The code that a call of `function` runs first; NULL with TypeError when it is not known. */
static PyCodeObject *root_code(PyObject *function)
{
    if (PyMethod_Check(function)) {
        function = PyMethod_GET_FUNCTION(function);
    }
    if (!PyFunction_Check(function)) {
        PyErr_Format(PyExc_TypeError,
                     "only a Python function or method can be compiled alone, not %s",
                     Py_TYPE(function)->tp_name);
        return NULL;
    }
    return (PyCodeObject *)((PyFunctionObject *)function)->func_code;
}

PyObject *frame_hook_call(FrameCompiler *compiler, PyObject *function, PyObject *args,
                          PyObject *keywords)
{
    PyCodeObject *root = NULL;
    if (compiler->root_only && (root = root_code(function)) == NULL) {
        return NULL;
    }
    Activity before = activity;
    Py_INCREF(compiler);
    Py_XINCREF(root);
    hook_hold();
    activity = (Activity){.active = compiler, .root = root};
    PyObject *result = PyObject_Call(function, args, keywords);
    bool still_waiting = root == NULL || activity.root == root;
    activity = before;
    if (still_waiting) {
        hook_release();
    }
    Py_XDECREF(root);
    Py_DECREF(compiler);
    return result;
}

PyObject *frame_hook_is_installed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate_frame);
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *attributes; /* its __dict__ */
} Disabled;

static PyObject *call_disabled(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    Activity before = activity;
    activity = (Activity){0};
    PyObject *result = PyObject_Vectorcall(((Disabled *)self)->function, args, count, names);
    activity = before;
    return result;
}

static PyObject *Disabled_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"function", NULL};
    PyObject *function;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:Disabled", names, &function)) {
        return NULL;
    }
    if (!PyCallable_Check(function)) {
        return PyErr_Format(PyExc_TypeError, "%R is not callable", function);
    }
    Disabled *self = (Disabled *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = call_disabled;
        self->function = Py_NewRef(function);
    }
    return (PyObject *)self;
}

/* As a function does, so that methods can be disabled. */
static PyObject *Disabled_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static int Disabled_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((Disabled *)object)->function);
    Py_VISIT(((Disabled *)object)->attributes);
    return 0;
}

static int Disabled_clear(PyObject *object)
{
    Py_CLEAR(((Disabled *)object)->function);
    Py_CLEAR(((Disabled *)object)->attributes);
    return 0;
}

static void Disabled_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Disabled_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *Disabled_repr(PyObject *object)
{
    return PyUnicode_FromFormat("<disabled %R>", ((Disabled *)object)->function);
}

static PyGetSetDef Disabled_getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

PyDoc_STRVAR(Disabled_doc,
             "Disabled(function)\n--\n\n"
             "`function` as a callable that runs with the frame hook off on its thread.");

PyTypeObject Disabled_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.Disabled",
    .tp_basicsize = sizeof(Disabled),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = Disabled_doc,
    .tp_new = Disabled_new,
    .tp_dealloc = Disabled_dealloc,
    .tp_traverse = Disabled_traverse,
    .tp_clear = Disabled_clear,
    .tp_repr = Disabled_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Disabled, vectorcall),
    .tp_dictoffset = offsetof(Disabled, attributes),
    .tp_descr_get = Disabled_get,
    .tp_getset = Disabled_getters,
};
