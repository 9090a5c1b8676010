/* Asks the compile callback for entries, within limits. */
#include "frame_compiler.h"

#include <stddef.h>
#include <structmember.h>

#include "frame_hook.h"
#include "written_calls.h"

static PyTypeObject *frame_type; /* the struct sequence that callbacks receive */

static PyStructSequence_Field frame_fields[] = {
    {"function", "the function that was called"},
    {"code", "its code object"},
    {"globals", "its globals"},
    {"builtins", "its builtins"},
    {"closure", "its closure, a tuple of cells, or None"},
    {"locals",
     "a new dict from each parameter's name to its argument, captured ones not yet in cells"},
    {"entries", "the tuple of the entries of this code that served the call's owner, none of which "
                "holds"},
    {NULL, NULL},
};

static PyStructSequence_Desc frame_description = {
    "fusewright.native.Frame",
    "A function call that is about to run: what a FrameCompiler's callback receives.",
    frame_fields,
    7,
};

int frame_compiler_setup(PyObject *module)
{
    if (code_records_prepare() < 0) {
        return -1;
    }
    if (frame_type == NULL && (frame_type = PyStructSequence_NewType(&frame_description)) == NULL) {
        return -1;
    }
    return PyModule_AddType(module, frame_type);
}

static PyObject *entries_tuple(Entry **found, Py_ssize_t count)
{
    PyObject *entries = PyTuple_New(count);
    for (Py_ssize_t i = 0; entries != NULL && i < count; i++) {
        PyTuple_SET_ITEM(entries, i, Py_NewRef((PyObject *)found[i]));
    }
    return entries;
}

/* The entries that served an owner, in the order of the record. */
static PyObject *entries_of_owner(FrameCompiler *compiler, PyCodeObject *code, const OwnerKey *key)
{
    PyObject *entries = PyList_New(0);
    Owner *owner = code_records_find_owner(&compiler->records, code, key);
    CodeRecord *record = owner ? code_records_find(&compiler->records, code) : NULL;
    for (Py_ssize_t i = 0; entries != NULL && record != NULL && i < record->entry_count; i++) {
        if (owner_has(owner, record->entries[i]) &&
            PyList_Append(entries, (PyObject *)record->entries[i]) < 0) {
            Py_CLEAR(entries);
        }
    }
    PyObject *result = entries ? PyList_AsTuple(entries) : NULL;
    Py_XDECREF(entries);
    return result;
}

static PyObject *locals_dict(const PendingCall *call)
{
    PyObject *locals = PyDict_New();
    int count = code_parameter_count(call->code);
    for (int i = 0; locals != NULL && i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(call->code->co_localsplusnames, i);
        if (PyDict_SetItem(locals, name, call->locals[i]) < 0) {
            Py_CLEAR(locals);
        }
    }
    return locals;
}

/* The `Frame` that describes a call to the callback. */
static PyObject *describe_call(FrameCompiler *compiler, const PendingCall *call,
                               const OwnerKey *key)
{
    PyFunctionObject *function = call->function;
    PyObject *description = PyStructSequence_New(frame_type);
    PyObject *locals = locals_dict(call);
    PyObject *entries = entries_of_owner(compiler, call->code, key);
    if (description == NULL || locals == NULL || entries == NULL) {
        Py_XDECREF(description);
        Py_XDECREF(locals);
        Py_XDECREF(entries);
        return NULL;
    }
    PyObject *closure = function->func_closure ? function->func_closure : Py_None;
    PyObject *fields[] = {
        Py_NewRef((PyObject *)function),
        Py_NewRef((PyObject *)call->code),
        Py_NewRef(function->func_globals),
        Py_NewRef(function->func_builtins),
        Py_NewRef(closure),
        locals,
        entries,
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(fields); i++) {
        PyStructSequence_SetItem(description, (Py_ssize_t)i, fields[i]);
    }
    return description;
}

static int keep_answer(FrameCompiler *self, const PendingCall *call, const OwnerKey *key,
                       PyObject *answer)
{
    PyCodeObject *code = call->code;
    CodeRecord *record = code_records_find(&self->records, code);
    if (record == NULL && (record = code_records_add(&self->records, code)) == NULL) {
        return -1;
    }
    if (answer == Py_None) {
        record->closed = true;
        return 0;
    }
    if (answer == Py_False) {
        written_calls_refuse(record);
        return 0;
    }
    record->refusals = 0;
    if (!Py_IS_TYPE(answer, &Entry_Type) || !entry_fits((Entry *)answer, code)) {
        PyErr_Format(
            PyExc_TypeError,
            "the compile callback must return None, False, or an Entry with the parameters and "
            "free variables of %U, not %R",
            code->co_qualname, answer);
        return -1;
    }
    Owner *owner = code_records_add_owner(&self->records, code, key);
    if (owner == NULL ||
        code_record_add_entry(code_records_find(&self->records, code), (Entry *)answer) < 0) {
        return -1;
    }
    return owner_use(owner, (Entry *)answer);
}

/* Which limit a call has reached. */
typedef enum { NO_LIMIT, LIMIT_OF_OWNER, LIMIT_OF_CODE, LIMIT_OF_ALL } Limit;

/* From now on the calls of the owner, or of the code, run as they are where no entry holds; the one
   who asked is told, and once in all of the accumulated limit. -1 with an exception. */
static int reach_limit(FrameCompiler *self, const PendingCall *call, const OwnerKey *key,
                       Limit limit)
{
    Owner *owner = code_records_add_owner(&self->records, call->code, key);
    if (owner == NULL) {
        return -1;
    }
    owner->closed = true;
    code_records_find(&self->records, call->code)->closed |= limit != LIMIT_OF_OWNER;
    bool told = limit == LIMIT_OF_ALL && self->told_accumulated;
    self->told_accumulated |= limit == LIMIT_OF_ALL;
    if (told || self->on_limit == Py_None) {
        return 0;
    }
    PyObject *description = describe_call(self, call, key);
    PyObject *of_all = limit == LIMIT_OF_ALL ? Py_True : Py_False;
    PyObject *answer = description
                           ? PyObject_CallFunctionObjArgs(self->on_limit, description, of_all, NULL)
                           : NULL;
    Py_XDECREF(description);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* What each call makes anew, such as a class, would else have it compiled at each call. */
#define WASTED_SHARE 4

static Limit limit_of_code(FrameCompiler *self, PyCodeObject *code, const OwnerKey *key)
{
    CodeRecord *record = code_records_find(&self->records, code);
    Owner *owner = code_records_find_owner(&self->records, code, key);
    if (owner != NULL && owner->entry_count >= self->recompile_limit) {
        return LIMIT_OF_OWNER;
    }
    if (record != NULL && record->wasted_count >= WASTED_SHARE * self->recompile_limit) {
        return LIMIT_OF_CODE;
    }
    return NO_LIMIT;
}

/* Whether a limit is reached, told then; -1 with an exception. */
static int check_limits(FrameCompiler *self, const PendingCall *call, const OwnerKey *key)
{
    if (code_records_drop_dead(&self->records, call->code, self->recompile_limit) < 0) {
        return -1;
    }
    Limit limit = limit_of_code(self, call->code, key);
    if (limit == NO_LIMIT && self->records.entry_count >= self->accumulated_limit) {
        if (code_records_drop_dead(&self->records, NULL, 0) < 0) {
            return -1;
        }
        limit = self->records.entry_count >= self->accumulated_limit ? LIMIT_OF_ALL : NO_LIMIT;
    }
    if (limit == NO_LIMIT) {
        return 0;
    }
    return reach_limit(self, call, key, limit) < 0 ? -1 : 1;
}

/* How many calls of this thread run what is compiled, and compile nothing. */
static _Thread_local int only_running;

PyObject *frame_compiler_run_only(PyObject *Py_UNUSED(module), PyObject *const *args,
                                  Py_ssize_t count)
{
    if (count != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "run_only takes a function, a tuple and a dict");
        return NULL;
    }
    only_running++;
    PyObject *result = PyObject_Call(args[0], args[1], args[2]);
    only_running--;
    return result;
}

Entry *frame_compiler_compile(FrameCompiler *self, const PendingCall *call)
{
    if (only_running > 0) {
        return NULL;
    }
    const Owners nobody = {0};
    CodeRecord *record = code_records_find(&self->records, call->code);
    OwnerKey key = owner_key(record ? &record->owners : &nobody, call);
    Owner *owner = record ? owners_find(&record->owners, &key) : NULL;
    if ((owner != NULL && owner->closed) || check_limits(self, call, &key) != 0) {
        return NULL;
    }
    PyObject *description = describe_call(self, call, &key);
    PyObject *answer = description ? PyObject_CallOneArg(self->callback, description) : NULL;
    Py_XDECREF(description);
    if (answer == NULL) {
        return NULL;
    }
    if (keep_answer(self, call, &key, answer) < 0 || !Py_IS_TYPE(answer, &Entry_Type)) {
        Py_DECREF(answer);
        return NULL;
    }
    return (Entry *)answer;
}

static int initialize(FrameCompiler *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"callback", "recompile_limit", "accumulated_limit", "on_limit", NULL};
    PyObject *callback, *on_limit = Py_None;
    self->recompile_limit = 8;
    self->accumulated_limit = 256;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|nnO:FrameCompiler", names, &callback,
                                     &self->recompile_limit, &self->accumulated_limit, &on_limit)) {
        return -1;
    }
    if (!PyCallable_Check(callback) || (on_limit != Py_None && !PyCallable_Check(on_limit))) {
        PyErr_SetString(PyExc_TypeError, "FrameCompiler takes callables");
        return -1;
    }
    self->callback = Py_NewRef(callback);
    self->on_limit = Py_NewRef(on_limit);
    return 0;
}

static PyObject *FrameCompiler_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    FrameCompiler *self = (FrameCompiler *)type->tp_alloc(type, 0);
    if (self != NULL && initialize(self, args, keywords) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int FrameCompiler_traverse(PyObject *object, visitproc visit, void *arg)
{
    FrameCompiler *self = (FrameCompiler *)object;
    Py_VISIT(self->callback);
    Py_VISIT(self->on_limit);
    for (CodeRecord *record = self->records.first; record != NULL; record = record->next) {
        for (Py_ssize_t i = 0; i < record->entry_count; i++) {
            Py_VISIT(record->entries[i]);
        }
    }
    return 0;
}

static int FrameCompiler_clear(PyObject *object)
{
    FrameCompiler *self = (FrameCompiler *)object;
    code_records_clear(&self->records);
    Py_CLEAR(self->callback);
    Py_CLEAR(self->on_limit);
    return 0;
}

static void FrameCompiler_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    PyObject_ClearWeakRefs(object);
    FrameCompiler_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *FrameCompiler_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    bool valid =
        count == 3 && PyTuple_Check(args[1]) && (args[2] == Py_None || PyDict_Check(args[2]));
    if (!valid) {
        PyErr_SetString(PyExc_TypeError,
                        "FrameCompiler.call takes a function, a tuple and a dict or None");
        return NULL;
    }
    return frame_hook_call((FrameCompiler *)self, args[0], args[1],
                           args[2] == Py_None ? NULL : args[2]);
}

static PyObject *FrameCompiler_entries(PyObject *self, PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "entries are kept by code object, not by %s",
                            Py_TYPE(code)->tp_name);
    }
    CodeRecord *record = code_records_find(&((FrameCompiler *)self)->records, (PyCodeObject *)code);
    return record ? entries_tuple(record->entries, record->entry_count) : PyTuple_New(0);
}

static PyObject *FrameCompiler_reset(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    code_records_clear(&((FrameCompiler *)self)->records);
    ((FrameCompiler *)self)->told_accumulated = false;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    call_doc,
    "call(function, args, kwargs, /)\n--\n\n"
    "`function(*args, **kwargs)` with this compiler's entries in place of the frames that\n"
    "they stand for, on this thread. `function`: a Python function or method; what runs before\n"
    "its own frame is left alone.");
PyDoc_STRVAR(entries_doc, "entries(code, /)\n--\n\n"
                          "The tuple of entries made for a code object, last used first.");
PyDoc_STRVAR(reset_doc, "reset()\n--\n\n"
                        "Forget all entries and all code that was to run as it is.");

static PyMethodDef FrameCompiler_methods[] = {
    {"call", (PyCFunction)(void (*)(void))FrameCompiler_call, METH_FASTCALL, call_doc},
    {"entries", FrameCompiler_entries, METH_O, entries_doc},
    {"reset", FrameCompiler_reset, METH_NOARGS, reset_doc},
    {NULL},
};

static PyMemberDef FrameCompiler_members[] = {
    {"callback", T_OBJECT, offsetof(FrameCompiler, callback), READONLY,
     "asked about frames without an entry"},
    {"on_limit", T_OBJECT, offsetof(FrameCompiler, on_limit), READONLY,
     "told when there are too many entries"},
    {"recompile_limit", T_PYSSIZET, offsetof(FrameCompiler, recompile_limit), READONLY,
     "entries of a code object per owner"},
    {"accumulated_limit", T_PYSSIZET, offsetof(FrameCompiler, accumulated_limit), READONLY,
     "entries over all code objects"},
    {NULL},
};

PyDoc_STRVAR(
    FrameCompiler_doc,
    "FrameCompiler(callback, recompile_limit=8, accumulated_limit=256, on_limit=None)\n--\n\n"
    "Compiled functions in place of frames.\n\n"
    "During `call`, the function's frame is looked up: the first of its code's entries whose\n"
    "guards hold runs in its place; when none does, `callback(frame)` returns an Entry to run,\n"
    "kept if it is new, None to run this code as it is from now on, or False to do so this once.\n"
    "So is each Continuation that an entry's function returns, and so are the frames called while an\n"
    "entry that continues, or a frame as it is, runs. What the callback raises reaches the\n"
    "caller. The callback and the guards run unhooked.\n\n"
    "Entries are kept by code object, and found by the call's owner: the first argument that is an\n"
    "object of a class written in Python (`self` as a rule) or a function, the first function\n"
    "behind that, and the function called where it has a closure. Owners are held weakly; the entries of those that\n"
    "are gone serve others like them, but for `recompile_limit` of a code they are dropped. With\n"
    "`recompile_limit` entries an owner gets no more of a code, nor does any once there are\n"
    "`accumulated_limit` entries in all; `on_limit(frame, accumulated)` is called once an owner,\n"
    "and once in all. Dropping the FrameCompiler drops its entries.");

PyTypeObject FrameCompiler_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.FrameCompiler",
    .tp_basicsize = sizeof(FrameCompiler),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = FrameCompiler_doc,
    .tp_new = FrameCompiler_new,
    .tp_dealloc = FrameCompiler_dealloc,
    .tp_traverse = FrameCompiler_traverse,
    .tp_clear = FrameCompiler_clear,
    .tp_weaklistoffset = offsetof(FrameCompiler, weak_references),
    .tp_methods = FrameCompiler_methods,
    .tp_members = FrameCompiler_members,
};
