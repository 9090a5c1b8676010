/* Continuations carry a call from one piece of compiled code to the next; the frame hook runs the
   function that they name in place of the first, so that a chain of them needs no recursion. */
#include "continuation.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *make(PyObject *function, PyObject *arguments)
{
    if (!PyFunction_Check(function) || !PyTuple_CheckExact(arguments)) {
        return PyErr_Format(PyExc_TypeError,
                            "Continuation takes a Python function and a tuple, not %s and %s",
                            Py_TYPE(function)->tp_name, Py_TYPE(arguments)->tp_name);
    }
    Continuation *self = PyObject_GC_New(Continuation, &Continuation_Type);
    if (self == NULL) {
        return NULL;
    }
    self->function = (PyFunctionObject *)Py_NewRef(function);
    self->arguments = Py_NewRef(arguments);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Compiled code makes one at each break: no tuple and no dictionary of arguments on that way. */
static PyObject *Continuation_vectorcall(PyObject *Py_UNUSED(type), PyObject *const *args,
                                         size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 2 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "Continuation takes two positional arguments");
        return NULL;
    }
    return make(args[0], args[1]);
}

static PyObject *Continuation_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "", NULL};
    PyObject *function, *arguments;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:Continuation", names, &function,
                                     &arguments)) {
        return NULL;
    }
    return make(function, arguments);
}

static int Continuation_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((Continuation *)object)->function);
    Py_VISIT(((Continuation *)object)->arguments);
    return 0;
}

/* No clearing: it can only be part of a cycle that its function or a member of its tuple closes,
   and those are cleared. */
static void Continuation_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Py_DECREF(((Continuation *)object)->function);
    Py_DECREF(((Continuation *)object)->arguments);
    PyObject_GC_Del(object);
}

static PyMemberDef Continuation_members[] = {
    {"function", T_OBJECT, offsetof(Continuation, function), READONLY, "where the call goes on"},
    {"arguments", T_OBJECT, offsetof(Continuation, arguments), READONLY, "its arguments, a tuple"},
    {NULL},
};

PyDoc_STRVAR(Continuation_doc,
             "Continuation(function, arguments, /)\n--\n\n"
             "Returned by an entry's function: the call goes on as `function(*arguments)`.\n\n"
             "The frame hook runs that call in place of the first, under the same compiler, as a\n"
             "frame of its own: an entry of it, one compiled now, or the function as it is.\n"
             "`function`: a Python function with positional parameters only; `arguments`: the\n"
             "tuple of all of them.");

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
