/* The hook proper: who is active on which thread, when the evaluation function is installed, and
   the way of one call from its frame through its continuations.

   The evaluation function belongs to the whole interpreter, activity to a thread. The function is
   installed while some thread waits for frames: until the root frame of a compiled call is reached,
   while code that may call frames to be looked up runs, and, for one frame, when the code of an
   entry starts. Other compiled code runs under the plain interpreter. */
#include "frame_hook.h"

#include <stddef.h>
#include <structmember.h>

#include "entry_search.h"
#include "written_calls.h"

/* What one thread is doing. All zero: the hook is off. */
typedef struct {
    FrameCompiler *active;  /* looks frames up; kept alive by the `call` that set it */
    PyCodeObject *root;     /* when set, the only code that the compiler wants */
    struct Start *starting; /* the next frame of its code is its own: it is not looked up */
} Activity;

/* Code that is about to run for a call. */
typedef struct Start {
    PyCodeObject *code;
    PendingCall *call;
    FrameCompiler *inside; /* who looks up the frames that the code calls; NULL: nobody */
} Start;

static _Thread_local Activity activity;
static _Thread_local InterpreterFrame *chained; /* given to the evaluator that was there before */

/* Each frame that the hook evaluates takes room on the C stack, where the interpreter alone would
   need none for a Python function called by another. Below this many, frames are not looked up, so
   that a program may recurse as deeply as it could. */
#define DEEPEST 500

static _Thread_local int depth; /* frames under evaluation through the hook */

static _Thread_local uint64_t compiled; /* how many entries were made for this thread's calls */

static Py_ssize_t waiting; /* threads that hold the hook in place */
static _PyFrameEvalFunction previous_evaluator = _PyEval_EvalFrameDefault;
static _PyFrameEvalFunction in_front; /* had come before the hook when that was last taken away */

static PyObject *evaluate_frame(PyThreadState *thread, InterpreterFrame *frame, int throwing);

/* Put the hook in front of whatever evaluator is there, unless that one still calls it. */
static void hook_hold(void)
{
    waiting++;
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (current != evaluate_frame && current != in_front) {
        previous_evaluator = current;
        _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate_frame);
        in_front = NULL;
    }
}

/* Take the hook away where nobody waits; an evaluator put in front of it in the meantime stays, and
   chains to it. */
static void hook_remove(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (current == evaluate_frame) {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, previous_evaluator);
    }
    bool behind = current != evaluate_frame && current != _PyEval_EvalFrameDefault;
    in_front = behind ? current : NULL;
}

static void hook_release(void)
{
    if (--waiting == 0) {
        hook_remove();
    }
}

static bool waits(Activity of)
{
    return of.active != NULL || of.starting != NULL;
}

/* Change what this thread does, and with it whether it holds the hook. */
static void become(Activity next)
{
    bool before = waits(activity), after = waits(next);
    activity = next;
    if (after && !before) {
        hook_hold();
    } else if (before && !after) {
        hook_release();
    }
}

static const Activity off;

/* Evaluate a frame as it would be without the hook. An evaluator before the hook may itself chain
   to the hook, when the two were installed in turns by several threads: the frame then comes back,
   and goes to the interpreter. */
static PyObject *evaluate_unhooked(PyThreadState *thread, InterpreterFrame *frame, int throwing)
{
    if (previous_evaluator == _PyEval_EvalFrameDefault || chained == frame) {
        chained = NULL;
        return _PyEval_EvalFrameDefault(thread, frame, throwing);
    }
    chained = frame;
    PyObject *result = previous_evaluator(thread, frame, throwing);
    chained = NULL;
    return result;
}

/* Find or make the entry that stands for a call, with the hook off. NULL: run the call as it is, or
   an exception is set. */
static Entry *choose_entry(FrameCompiler *compiler, const PendingCall *call)
{
    become(off);
    CodeRecord *record = code_records_find(&compiler->records, call->code);
    if (record != NULL) {
        Entry *entry = entry_search(&compiler->records, call, record);
        if (entry != NULL) {
            return entry;
        }
        record = code_records_find(&compiler->records, call->code);
        if (record != NULL && written_calls_decline(record)) {
            return NULL;
        }
    }
    Entry *made = frame_compiler_compile(compiler, call);
    compiled += made != NULL;
    return made;
}

/* Call a function whose parameters are the call's locals. Steals the reference to it. */
static PyObject *run_function(PyFunctionObject *function, PendingCall *call, FrameCompiler *inside)
{
    size_t count = (size_t)code_parameter_count(call->code);
    Start start = {(PyCodeObject *)function->func_code, call, inside};
    become((Activity){.starting = &start});
    PyObject *result = PyObject_Vectorcall((PyObject *)function, call->locals, count, NULL);
    become(off);
    Py_DECREF(function);
    return result;
}

/* The frame that `starting` announced. Its arguments are its own by now: a continuation goes, so
   that nothing keeps what the program drops. */
static PyObject *evaluate_start(PyThreadState *thread, InterpreterFrame *frame)
{
    Start *start = activity.starting;
    become((Activity){.active = start->inside});
    Py_CLEAR(start->call->continuation);
    return evaluate_unhooked(thread, frame, 0);
}

/* Tell the entry that its function returned. Steals `result`; NULL: the one told raised. */
static PyObject *tell_return(Entry *entry, PyObject *result)
{
    PyObject *answer = PyObject_CallNoArgs(entry->on_return);
    if (answer == NULL) {
        Py_CLEAR(result);
    }
    Py_XDECREF(answer);
    return result;
}

/* Steals the reference to the entry. */
static PyObject *run_entry(FrameCompiler *compiler, Entry *entry, PendingCall *call)
{
    PyFunctionObject *function = entry_function(entry, call);
    FrameCompiler *inside = entry->continues ? compiler : NULL;
    PyObject *result = function ? run_function(function, call, inside) : NULL;
    if (result != NULL && entry->on_return != NULL) {
        result = tell_return(entry, result);
    }
    Py_DECREF(entry);
    return result;
}

/* Whether the continuation gives its function, and its entry's, an argument for each parameter;
   else TypeError. */
static bool is_complete(const PendingCall *call)
{
    Py_ssize_t given = PyTuple_GET_SIZE(call->continuation->arguments);
    Entry *entry = (Entry *)call->continuation->entry;
    bool runs = entry ? entry_fits(entry, call->code)
                      : call->code->co_argcount == code_parameter_count(call->code);
    if (runs && given == code_parameter_count(call->code)) {
        return true;
    }
    PyErr_Format(PyExc_TypeError,
                 "a continuation gives %zd arguments to %U, which must take just as many, "
                 "all positional",
                 given, call->code->co_qualname);
    return false;
}

static PyObject *run_continuation(FrameCompiler *compiler, PendingCall *call)
{
    if (!is_complete(call)) {
        return NULL;
    }
    Entry *given = (Entry *)call->continuation->entry;
    Entry *entry = given ? (Entry *)Py_NewRef(given) : choose_entry(compiler, call);
    if (entry != NULL) {
        return run_entry(compiler, entry, call);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    return run_function((PyFunctionObject *)Py_NewRef(call->function), call, compiler);
}

/* Run what a chain of continuations names until another result comes. Steals `result`. */
static PyObject *follow(FrameCompiler *compiler, PyObject *result)
{
    while (result != NULL && Py_IS_TYPE(result, &Continuation_Type)) {
        PendingCall call = pending_call_of_continuation((Continuation *)result);
        result = run_continuation(compiler, &call);
        Py_XDECREF(call.continuation);
    }
    return result;
}

/* Run a call from outside in the way that is the faster one, as far as that is known, with the hook
   off. Steals the reference to the entry. */
static PyObject *run_tried(PyThreadState *thread, InterpreterFrame *frame, FrameCompiler *compiler,
                           Entry *entry, PendingCall *call)
{
    uint64_t before = compiled;
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(call->code);
    PyObject *result;
    if (call_trial_begin(entry->trial) == WRITTEN) {
        result = evaluate_unhooked(thread, frame, 0);
    } else {
        result = follow(compiler, run_entry(compiler, (Entry *)Py_NewRef(entry), call));
        frame_release(thread, frame);
    }
    call_trial_end(entry->trial, result, compiled != before);
    if (call_trial_is_lost(entry->trial)) {
        written_calls_ran(&compiler->records, code);
    }
    Py_DECREF(entry);
    Py_DECREF(code);
    return result;
}

/* Answer for a frame that the thread's compiler wants. */
static PyObject *evaluate_wanted(PyThreadState *thread, InterpreterFrame *frame)
{
    Activity before = activity;
    FrameCompiler *compiler = (FrameCompiler *)Py_NewRef(before.active);
    PendingCall call = pending_call_of_frame(frame);
    Entry *entry = choose_entry(compiler, &call);
    PyObject *result;
    if (entry == NULL && !PyErr_Occurred()) {
        become((Activity){.active = compiler});
        result = evaluate_unhooked(thread, frame, 0);
    } else if (entry != NULL && entry->trial != NULL && before.root != NULL) {
        result = run_tried(thread, frame, compiler, entry, &call);
    } else {
        result = entry ? follow(compiler, run_entry(compiler, entry, &call)) : NULL;
        frame_release(thread, frame);
    }
    become(before.root == NULL ? before : off);
    Py_DECREF(compiler);
    return result;
}

/* Whether a call of the code runs as it is: nothing but that is to be found out, quickly. */
static bool is_skipped(FrameCompiler *compiler, PyCodeObject *code)
{
    CodeRecord *record = code_records_find(&compiler->records, code);
    return record != NULL && record->entry_count == 0 && written_calls_decline(record);
}

/* Evaluate a frame of a thread that waits for frames. */
static PyObject *evaluate_waited(PyThreadState *thread, InterpreterFrame *frame)
{
    const Activity *now = &activity;
    PyCodeObject *code = frame_code(frame);
    if (now->starting != NULL) {
        return now->starting->code == code ? evaluate_start(thread, frame)
                                           : evaluate_unhooked(thread, frame, 0);
    }
    bool wanted = now->root != NULL ? now->root == code : !is_skipped(now->active, code);
    if (!wanted || !frame_is_plain_call(frame)) {
        return evaluate_unhooked(thread, frame, 0);
    }
    return evaluate_wanted(thread, frame);
}

/* Evaluate a frame with the hook off on this thread. */
static PyObject *evaluate_deepest(PyThreadState *thread, InterpreterFrame *frame)
{
    Activity before = activity;
    become(off);
    PyObject *result = evaluate_unhooked(thread, frame, 0);
    become(before);
    return result;
}

static PyObject *evaluate_frame(PyThreadState *thread, InterpreterFrame *frame, int throwing)
{
    if (throwing || !waits(activity)) {
        if (waiting == 0) { /* put back by an evaluator that has gone from in front of it */
            hook_remove();
        }
        return evaluate_unhooked(thread, frame, throwing);
    }
    if (depth >= DEEPEST && activity.starting == NULL) {
        return evaluate_deepest(thread, frame);
    }
    depth++;
    PyObject *result = evaluate_waited(thread, frame);
    depth--;
    return result;
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

/* What a call from outside changes while it lasts. */
typedef struct {
    FrameCompiler *compiler; /* owned, as is the code */
    PyCodeObject *root;
    Activity before;
    bool hooked;
} OutsideCall;

/* False with TypeError where the function's code is not known. */
static bool enter(OutsideCall *call, FrameCompiler *compiler, PyObject *function)
{
    PyCodeObject *root = root_code(function);
    if (root == NULL) {
        return false;
    }
    CodeRecord *record = code_records_find(&compiler->records, root);
    bool hooked = record == NULL || !written_calls_are_unchecked(record);
    *call = (OutsideCall){(FrameCompiler *)Py_NewRef(compiler), (PyCodeObject *)Py_NewRef(root),
                          activity, hooked};
    become(hooked ? (Activity){.active = compiler, .root = root} : off);
    return true;
}

static PyObject *leave(OutsideCall *call, PyObject *result)
{
    if (call->hooked && activity.root == call->root) {
        in_front = NULL; /* its frame never came: whoever is in front does not chain */
    }
    become(call->before);
    Py_DECREF(call->root);
    Py_DECREF(call->compiler);
    return result;
}

PyObject *frame_hook_call(FrameCompiler *compiler, PyObject *function, PyObject *args,
                          PyObject *keywords)
{
    OutsideCall call;
    return enter(&call, compiler, function)
               ? leave(&call, PyObject_Call(function, args, keywords))
               : NULL;
}

PyObject *frame_hook_vectorcall(FrameCompiler *compiler, PyObject *function, PyObject *const *args,
                                size_t flags, PyObject *names)
{
    OutsideCall call;
    return enter(&call, compiler, function)
               ? leave(&call, PyObject_Vectorcall(function, args, flags, names))
               : NULL;
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
    become(off);
    PyObject *result = PyObject_Vectorcall(((Disabled *)self)->function, args, count, names);
    become(before);
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
