/* Continuations carry a call from one piece of compiled code to the next; the frame hook runs the
   function that they name in place of the first, so that a chain of them needs no recursion. */
#include "entry.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *make(PyObject *function, PyObject *arguments, PyObject *entry)
{
    if (!PyFunction_Check(function) || !PyTuple_CheckExact(arguments)) {
        return PyErr_Format(PyExc_TypeError,
                            "Continuation takes a Python function and a tuple, not %s and %s",
                            Py_TYPE(function)->tp_name, Py_TYPE(arguments)->tp_name);
    }
    if (entry != NULL && !Py_IS_TYPE(entry, &Entry_Type)) {
        return PyErr_Format(PyExc_TypeError, "Continuation takes an Entry, not %s",
                            Py_TYPE(entry)->tp_name);
    }
    Continuation *self = PyObject_GC_New(Continuation, &Continuation_Type);
    if (self == NULL) {
        return NULL;
    }
    self->function = (PyFunctionObject *)Py_NewRef(function);
    self->arguments = Py_NewRef(arguments);
    self->entry = Py_XNewRef(entry);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Compiled code makes one at each break: no tuple and no dictionary of arguments on that way. */
static PyObject *Continuation_vectorcall(PyObject *Py_UNUSED(type), PyObject *const *args,
                                         size_t flags, PyObject *names)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if ((count != 2 && count != 3) || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "Continuation takes two or three positional arguments");
        return NULL;
    }
    return make(args[0], args[1], count == 3 ? args[2] : NULL);
}

static PyObject *Continuation_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "", "", NULL};
    PyObject *function, *arguments, *entry = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|O:Continuation", names, &function,
                                     &arguments, &entry)) {
        return NULL;
    }
    return make(function, arguments, entry);
}

static int Continuation_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((Continuation *)object)->function);
    Py_VISIT(((Continuation *)object)->arguments);
    Py_VISIT(((Continuation *)object)->entry);
    return 0;
}

/* No clearing: it can only be part of a cycle that its function or a member of its tuple closes,
   and those are cleared. */
static void Continuation_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Py_DECREF(((Continuation *)object)->function);
    Py_DECREF(((Continuation *)object)->arguments);
    Py_XDECREF(((Continuation *)object)->entry);
    PyObject_GC_Del(object);
}

static PyMemberDef Continuation_members[] = {
    {"function", T_OBJECT, offsetof(Continuation, function), READONLY, "where the call goes on"},
    {"arguments", T_OBJECT, offsetof(Continuation, arguments), READONLY, "its arguments, a tuple"},
    {"entry", T_OBJECT, offsetof(Continuation, entry), READONLY, "what runs it, or None"},
    {NULL},
};

PyDoc_STRVAR(Continuation_doc,
             "Continuation(function, arguments, entry=…, /)\n--\n\n"
             "Returned by an entry's function: the call goes on as `function(*arguments)`.\n\n"
             "The frame hook runs that call in place of the first, under the same compiler, as a\n"
             "frame of its own: `entry` where one is given, whatever its guards; else an entry\n"
             "looked up, one compiled now, or the function as it is. `function`: a Python\n"
             "function, with positional parameters only unless there is an entry; `arguments`:\n"
             "the tuple of all of them, in the order of the function's locals.");

PyTypeObject Continuation_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.Continuation",
    .tp_basicsize = sizeof(Continuation),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = Continuation_doc,
    .tp_new = Continuation_new,
    .tp_vectorcall = Continuation_vectorcall,
    .tp_dealloc = Continuation_dealloc,
    .tp_traverse = Continuation_traverse,
    .tp_members = Continuation_members,
};
