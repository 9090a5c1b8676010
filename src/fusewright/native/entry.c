/* Entries run as ordinary calls: the compiled code becomes a function whose parameters are all
   positional, so that the frame's locals are its argument array as they stand, whatever the
   signature. */
#include "entry.h"

#include <stddef.h>
#include <structmember.h>

/* `code` with every parameter positional: keyword-only ones, *args and **keywords already lie
   behind the others. */
static PyObject *flatten_code(PyCodeObject *code)
{
    PyObject *replace = PyObject_GetAttrString((PyObject *)code, "replace");
    if (replace == NULL) {
        return NULL;
    }
    int flags = code->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS);
    PyObject *changes =
        Py_BuildValue("{s:i,s:i,s:i,s:i}", "co_argcount", code_parameter_count(code),
                      "co_posonlyargcount", 0, "co_kwonlyargcount", 0, "co_flags", flags);
    PyObject *none = PyTuple_New(0);
    PyObject *flat = changes && none ? PyObject_Call(replace, none, changes) : NULL;
    Py_XDECREF(none);
    Py_XDECREF(changes);
    Py_DECREF(replace);
    return flat;
}

/* A function of `code` with the names of `owner`: its globals and closure. */
static PyFunctionObject *make_function(PyObject *code, PyFunctionObject *owner)
{
    PyObject *function =
        PyFunction_NewWithQualName(code, owner->func_globals, owner->func_qualname);
    if (function != NULL && owner->func_closure != NULL &&
        PyFunction_SetClosure(function, owner->func_closure) < 0) {
        Py_CLEAR(function);
    }
    return (PyFunctionObject *)function;
}

/* The index of parameter `name` of `code`; -1 with an exception when it has none. */
static int find_parameter(PyCodeObject *code, PyObject *name)
{
    int count = code_parameter_count(code);
    for (int i = 0; i < count; i++) {
        int same =
            PyObject_RichCompareBool(PyTuple_GET_ITEM(code->co_localsplusnames, i), name, Py_EQ);
        if (same != 0) {
            return same < 0 ? -1 : i;
        }
    }
    PyErr_Format(PyExc_ValueError, "a guard names %R, which is no parameter of %U", name,
                 code->co_qualname);
    return -1;
}

static int resolve_guarded_locals(Entry *self)
{
    Py_ssize_t count = PyTuple_GET_SIZE(self->guards->local_names);
    self->guarded_locals = PyMem_Calloc((size_t)count + 1, sizeof *self->guarded_locals);
    if (self->guarded_locals == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyCodeObject *code = (PyCodeObject *)self->function->func_code;
    for (Py_ssize_t i = 0; i < count; i++) {
        self->guarded_locals[i] =
            find_parameter(code, PyTuple_GET_ITEM(self->guards->local_names, i));
        if (self->guarded_locals[i] < 0) {
            return -1;
        }
    }
    return 0;
}

bool entry_holds(Entry *entry, const PendingCall *call)
{
    if (entry->guards == NULL) {
        return true;
    }
    PyObject *locals[GUARD_PROGRAM_LOCALS];
    Py_ssize_t count = PyTuple_GET_SIZE(entry->guards->local_names);
    for (Py_ssize_t i = 0; i < count; i++) {
        locals[i] = call->locals[entry->guarded_locals[i]];
    }
    GuardContext context = {locals, call->function};
    return guard_program_check(entry->guards, &context, NULL);
}

bool entry_fits(const Entry *entry, PyCodeObject *code)
{
    PyCodeObject *own = (PyCodeObject *)entry->function->func_code;
    return code_parameter_count(own) == code_parameter_count(code) &&
           own->co_nfreevars == code->co_nfreevars;
}

bool entry_is_dead(Entry *entry)
{
    return entry->guards != NULL && guard_program_is_dead(entry->guards);
}

PyFunctionObject *entry_function(Entry *entry, const PendingCall *call)
{
    PyFunctionObject *called = call->function, *flat = entry->flat;
    if (called->func_closure == flat->func_closure && called->func_globals == flat->func_globals) {
        return (PyFunctionObject *)Py_NewRef(flat);
    }
    /* The same code under another closure: a function defined anew at each call of the one around
       it. */
    return make_function(flat->func_code, called);
}

static PyObject *Entry_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"function",  "guards",    "detail", "continues",
                            "on_return", "tried", "hooks", NULL};
    PyFunctionObject *function;
    PyObject *guards, *detail = Py_None, *on_return = Py_None, *hooks = Py_None;
    int continues = 0, tried = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O|OpOpO:Entry", names, &PyFunction_Type,
                                     &function, &guards, &detail, &continues, &on_return,
                                     &tried, &hooks)) {
        return NULL;
    }
    if (guards != Py_None && !Py_IS_TYPE(guards, &GuardProgram_Type)) {
        PyErr_Format(PyExc_TypeError, "Entry takes a GuardProgram or None as guards, not %s",
                     Py_TYPE(guards)->tp_name);
        return NULL;
    }
    Entry *self = (Entry *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->function = (PyFunctionObject *)Py_NewRef(function);
    self->guards = guards == Py_None ? NULL : (GuardProgram *)Py_NewRef(guards);
    self->detail = Py_NewRef(detail);
    self->on_return = on_return == Py_None ? NULL : Py_NewRef(on_return);
    self->continues = (char)continues;
    PyObject *code = flatten_code((PyCodeObject *)function->func_code);
    self->flat = code ? make_function(code, function) : NULL;
    Py_XDECREF(code);
    if (self->flat == NULL || (self->guards != NULL && resolve_guarded_locals(self) < 0) ||
        (tried && (self->trial = call_trial_new(hooks)) == NULL)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int Entry_traverse(PyObject *object, visitproc visit, void *arg)
{
    Entry *self = (Entry *)object;
    Py_VISIT(self->function);
    Py_VISIT(self->flat);
    Py_VISIT(self->guards);
    Py_VISIT(self->detail);
    Py_VISIT(self->on_return);
    Py_VISIT(self->trial ? self->trial->hooks : NULL);
    return 0;
}

static int Entry_clear(PyObject *object)
{
    Entry *self = (Entry *)object;
    Py_CLEAR(self->function);
    Py_CLEAR(self->flat);
    Py_CLEAR(self->guards);
    Py_CLEAR(self->detail);
    Py_CLEAR(self->on_return);
    return 0;
}

static void Entry_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Entry_clear(object);
    PyMem_Free(((Entry *)object)->guarded_locals);
    call_trial_free(((Entry *)object)->trial);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef Entry_members[] = {
    {"function", T_OBJECT, offsetof(Entry, function), READONLY,
     "the function that runs in place of the frame"},
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "the GuardProgram, or None"},
    {"detail", T_OBJECT, offsetof(Entry, detail), READONLY, "what was given beside them"},
    {"on_return", T_OBJECT, offsetof(Entry, on_return), READONLY,
     "what is called when the function has returned, or None"},
    {"continues", T_BOOL, offsetof(Entry, continues), READONLY,
     "whether frames called by the function are looked up, too"},
    {NULL},
};

static PyObject *Entry_outcome(PyObject *self, void *Py_UNUSED(closure))
{
    return call_trial_outcome(((Entry *)self)->trial);
}

static PyGetSetDef Entry_getters[] = {
    {"outcome", Entry_outcome, NULL,
     "What timing calls found: whether they run as they are written, nanoseconds a call compiled\n"
     "and as written, and whether that is up to the next call. None: they were not timed.",
     NULL},
    {NULL},
};

PyDoc_STRVAR(
    Entry_doc,
    "Entry(function, guards, detail=None, continues=False, on_return=None, tried=False, "
    "hooks=None)\n--\n\n"
    "A compiled function and the guards under which it runs in place of a frame.\n\n"
    "`function`: a Python function with the parameters of the frame's, in the same order\n"
    "under the same names, and the same free variables; its globals, closure and defaults are\n"
    "those of the frame's own function at each call. It may return a Continuation. `guards`: a\n"
    "GuardProgram, or None when the entry always holds. `detail`: any object, kept for\n"
    "reports. `continues`: whether the frames that `function` calls are looked up while it\n"
    "runs; else the hook is off. `on_return`: called without arguments whenever `function` has\n"
    "returned rather than raised; what it raises is raised in place of the result. `tried`:\n"
    "where the entry stands for a call from outside, a few such calls run as they are written,\n"
    "and all do if those are faster. `hooks`: gives, called with True, the hooks of what calls\n"
    "save for backward, or None; where there are such, calls run compiled. ValueError: a guard\n"
    "names no parameter of the function.");

PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = Entry_doc,
    .tp_new = Entry_new,
    .tp_dealloc = Entry_dealloc,
    .tp_traverse = Entry_traverse,
    .tp_clear = Entry_clear,
    .tp_members = Entry_members,
    .tp_getset = Entry_getters,
};
