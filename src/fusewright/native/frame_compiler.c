/* Keeps entries by code object, and asks the compile callback for new ones. */
#include "frame_compiler.h"

#include <stddef.h>
#include <structmember.h>

#include "frame_hook.h"

static Py_ssize_t extra_index = -1;

static PyTypeObject *frame_type; /* the struct sequence that callbacks receive */

static PyStructSequence_Field frame_fields[] = {
    {"function", "the function that was called"},
    {"code", "its code object"},
    {"globals", "its globals"},
    {"builtins", "its builtins"},
    {"closure", "its closure, a tuple of cells, or None"},
    {"locals",
     "a new dict from each parameter's name to its argument, captured ones not yet in cells"},
    {"entries", "the tuple of entries made so far for this code, none of which holds"},
    {NULL, NULL},
};

static PyStructSequence_Desc frame_description = {
    "fusewright.native.Frame",
    "A function call that is about to run: what a FrameCompiler's callback receives.",
    frame_fields,
    7,
};

/* Once a process, however often the module is made: records must stay where they were put. */
static int prepare(void)
{
    /* No free function: a record owns its code object, so that the slot of a dying code object is
       empty. */
    extra_index = PyUnstable_Eval_RequestCodeExtraIndex(NULL);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError,
                        "this Python has no extra slot on code objects left for fusewright");
        return -1;
    }
    frame_type = PyStructSequence_NewType(&frame_description);
    return frame_type == NULL ? -1 : 0;
}

int frame_compiler_setup(PyObject *module)
{
    if (frame_type == NULL && prepare() < 0) {
        return -1;
    }
    return PyModule_AddType(module, frame_type);
}

/* The first record of `code`, over all compilers. */
static CodeRecord *first_record(PyCodeObject *code)
{
    void *record = NULL;
    PyUnstable_Code_GetExtra((PyObject *)code, extra_index, &record);
    return record;
}

CodeRecord *frame_compiler_find(FrameCompiler *compiler, PyCodeObject *code)
{
    CodeRecord *record = first_record(code);
    while (record != NULL && record->compiler != compiler) {
        record = record->next_of_code;
    }
    return record;
}

static CodeRecord *add_record(FrameCompiler *compiler, PyCodeObject *code)
{
    CodeRecord *record = PyMem_Calloc(1, sizeof *record);
    if (record == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    record->next_of_code = first_record(code);
    if (PyUnstable_Code_SetExtra((PyObject *)code, extra_index, record) < 0) {
        PyMem_Free(record);
        return NULL;
    }
    record->compiler = compiler;
    record->code = (PyCodeObject *)Py_NewRef(code);
    record->next_of_compiler = compiler->records;
    compiler->records = record;
    return record;
}

static void unlink_from_code(CodeRecord *record)
{
    CodeRecord *first = first_record(record->code);
    if (first == record) {
        PyUnstable_Code_SetExtra((PyObject *)record->code, extra_index, record->next_of_code);
        return;
    }
    while (first->next_of_code != record) {
        first = first->next_of_code;
    }
    first->next_of_code = record->next_of_code;
}

static void free_records(FrameCompiler *compiler)
{
    while (compiler->records != NULL) {
        CodeRecord *record = compiler->records;
        compiler->records = record->next_of_compiler;
        unlink_from_code(record);
        for (Py_ssize_t i = 0; i < record->entry_count; i++) {
            Py_DECREF(record->entries[i]);
        }
        Py_DECREF(record->code);
        PyMem_Free(record->entries);
        PyMem_Free(record);
    }
}

/* Guards may run user code (an attribute with a getter), which may change the entries or free the
   record: nothing of it is used after a check without looking again. */
Entry *frame_compiler_find_entry(FrameCompiler *compiler, InterpreterFrame *frame,
                                 CodeRecord *record)
{
    PyCodeObject *code = record->code;
    for (Py_ssize_t i = 0; record != NULL && i < record->entry_count; i++) {
        Entry *entry = (Entry *)Py_NewRef(record->entries[i]);
        if (entry_holds(entry, frame)) {
            record = frame_compiler_find(compiler, code);
            if (record != NULL && i > 0 && i < record->entry_count && record->entries[i] == entry) {
                memmove(record->entries + 1, record->entries, (size_t)i * sizeof *record->entries);
                record->entries[0] = entry;
            }
            return entry;
        }
        Py_DECREF(entry);
        record = frame_compiler_find(compiler, code);
    }
    return NULL;
}

/* The dead entries are let go last: that may run user code, which may change the record. */
static int drop_dead_entries(CodeRecord *record)
{
    PyObject *dead = PyList_New(0);
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = 0; dead != NULL && i < record->entry_count; i++) {
        Entry *entry = record->entries[i];
        if (entry_is_dead(entry) && PyList_Append(dead, (PyObject *)entry) == 0) {
            Py_DECREF(entry);
        } else {
            record->entries[kept++] = entry;
        }
    }
    if (dead == NULL || PyErr_Occurred()) {
        Py_XDECREF(dead);
        return -1;
    }
    record->entry_count = kept;
    Py_DECREF(dead);
    return 0;
}

static PyObject *entries_tuple(CodeRecord *record)
{
    Py_ssize_t count = record ? record->entry_count : 0;
    PyObject *entries = PyTuple_New(count);
    for (Py_ssize_t i = 0; entries != NULL && i < count; i++) {
        PyTuple_SET_ITEM(entries, i, Py_NewRef((PyObject *)record->entries[i]));
    }
    return entries;
}

static PyObject *locals_dict(InterpreterFrame *frame)
{
    PyCodeObject *code = frame_code(frame);
    PyObject *locals = PyDict_New();
    int count = code_parameter_count(code);
    for (int i = 0; locals != NULL && i < count; i++) {
        if (PyDict_SetItem(locals, PyTuple_GET_ITEM(code->co_localsplusnames, i),
                           frame->localsplus[i]) < 0) {
            Py_CLEAR(locals);
        }
    }
    return locals;
}

/* The `Frame` that describes a fresh frame to the callback. */
static PyObject *describe_frame(InterpreterFrame *frame, CodeRecord *record)
{
    PyFunctionObject *function = frame_function(frame);
    PyObject *description = PyStructSequence_New(frame_type);
    PyObject *locals = locals_dict(frame);
    PyObject *entries = entries_tuple(record);
    if (description == NULL || locals == NULL || entries == NULL) {
        Py_XDECREF(description);
        Py_XDECREF(locals);
        Py_XDECREF(entries);
        return NULL;
    }
    PyObject *closure = function->func_closure ? function->func_closure : Py_None;
    PyObject *fields[] = {
        Py_NewRef((PyObject *)function),
        Py_NewRef((PyObject *)frame_code(frame)),
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

static PyObject *call_with_frame(PyObject *callback, InterpreterFrame *frame, CodeRecord *record)
{
    PyObject *description = describe_frame(frame, record);
    if (description == NULL) {
        return NULL;
    }
    PyObject *answer = PyObject_CallOneArg(callback, description);
    Py_DECREF(description);
    return answer;
}

/* The entry's code runs on the frame's locals and closure as they stand: they must agree in number.
 */
static bool entry_fits(Entry *entry, PyCodeObject *code)
{
    PyCodeObject *own = (PyCodeObject *)entry->function->func_code;
    return code_parameter_count(own) == code_parameter_count(code) &&
           own->co_nfreevars == code->co_nfreevars;
}

static int keep_answer(FrameCompiler *self, PyCodeObject *code, PyObject *answer)
{
    CodeRecord *record = frame_compiler_find(self, code);
    if (record == NULL && (record = add_record(self, code)) == NULL) {
        return -1;
    }
    if (answer == Py_None) {
        record->closed = true;
        return 0;
    }
    if (!Py_IS_TYPE(answer, &Entry_Type) || !entry_fits((Entry *)answer, code)) {
        PyErr_Format(
            PyExc_TypeError,
            "the compile callback must return None or an Entry with the parameters and free "
            "variables "
            "of %U, not %R",
            code->co_qualname, answer);
        return -1;
    }
    Entry **entries =
        PyMem_Realloc(record->entries, (size_t)(record->entry_count + 1) * sizeof *record->entries);
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memmove(entries + 1, entries, (size_t)record->entry_count * sizeof *entries);
    entries[0] = (Entry *)Py_NewRef(answer);
    record->entries = entries;
    record->entry_count++;
    return 0;
}

/* From now on the code runs as it is where no entry holds, and the one who asked is told once. */
static void reach_limit(FrameCompiler *self, InterpreterFrame *frame, CodeRecord *record)
{
    record->closed = true;
    if (self->on_limit == Py_None) {
        return;
    }
    PyObject *answer = call_with_frame(self->on_limit, frame, record);
    Py_XDECREF(answer);
}

Entry *frame_compiler_compile(FrameCompiler *self, InterpreterFrame *frame)
{
    PyCodeObject *code = frame_code(frame);
    CodeRecord *record = frame_compiler_find(self, code);
    if (record != NULL && drop_dead_entries(record) < 0) {
        return NULL;
    }
    record = frame_compiler_find(self, code);
    if (record != NULL && record->entry_count >= self->recompile_limit) {
        reach_limit(self, frame, record);
        return NULL;
    }
    PyObject *answer = call_with_frame(self->callback, frame, record);
    if (answer == NULL) {
        return NULL;
    }
    if (keep_answer(self, code, answer) < 0 || answer == Py_None) {
        Py_DECREF(answer);
        return NULL;
    }
    return (Entry *)answer;
}

static int initialize(FrameCompiler *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"callback", "recompile_limit", "root_only", "on_limit", NULL};
    PyObject *callback, *on_limit = Py_None;
    Py_ssize_t recompile_limit = 8;
    int root_only = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|npO:FrameCompiler", names, &callback,
                                     &recompile_limit, &root_only, &on_limit)) {
        return -1;
    }
    if (!PyCallable_Check(callback) || (on_limit != Py_None && !PyCallable_Check(on_limit))) {
        PyErr_SetString(PyExc_TypeError, "FrameCompiler takes callables");
        return -1;
    }
    self->callback = Py_NewRef(callback);
    self->on_limit = Py_NewRef(on_limit);
    self->recompile_limit = recompile_limit;
    self->root_only = (char)root_only;
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
    for (CodeRecord *record = self->records; record != NULL; record = record->next_of_compiler) {
        for (Py_ssize_t i = 0; i < record->entry_count; i++) {
            Py_VISIT(record->entries[i]);
        }
    }
    return 0;
}

static int FrameCompiler_clear(PyObject *object)
{
    FrameCompiler *self = (FrameCompiler *)object;
    free_records(self);
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
    return entries_tuple(frame_compiler_find((FrameCompiler *)self, (PyCodeObject *)code));
}

static PyObject *FrameCompiler_reset(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    free_records((FrameCompiler *)self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    call_doc,
    "call(function, args, kwargs, /)\n--\n\n"
    "`function(*args, **kwargs)` with this compiler's entries in place of the frames that\n"
    "they stand for, on this thread. `function`: with `root_only`, a Python function or\n"
    "method.");
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
     "told when a code has too many entries"},
    {"recompile_limit", T_PYSSIZET, offsetof(FrameCompiler, recompile_limit), READONLY,
     "entries per code object"},
    {"root_only", T_BOOL, offsetof(FrameCompiler, root_only), READONLY,
     "whether inner frames are left alone"},
    {NULL},
};

PyDoc_STRVAR(
    FrameCompiler_doc,
    "FrameCompiler(callback, recompile_limit=8, root_only=False, on_limit=None)\n--\n\n"
    "Compiled functions in place of frames.\n\n"
    "During `call`, each Python function called on this thread is looked up: the first of its\n"
    "code's entries whose guards hold runs in its place; when none does, `callback(frame)`\n"
    "returns an Entry to keep and run, or None to run this code as it is from now on. What\n"
    "the callback raises reaches the caller. With `recompile_limit` entries a code gets no\n"
    "more, and `on_limit(frame)` is called once. With `root_only`, only the function given to\n"
    "`call` is looked up. The callback and the guards run unhooked. Entries are kept by code\n"
    "object; dropping the FrameCompiler drops them.");

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
