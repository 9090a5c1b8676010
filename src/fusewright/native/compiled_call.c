/* A call of compiled code passes its arguments on as they come: no tuple, no dictionary, no frame. */
#include "compiled_call.h"

#include "frame_hook.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    FrameCompiler *compiler;
    PyObject *function;
    PyObject *first; /* the argument ahead of those of each call; NULL: none */
} CompiledCall;

#define MOST_ON_STACK 8

/* Call with `first` ahead of the arguments, in a copy of them. */
static PyObject *call_with_first(CompiledCall *self, PyObject *const *args, size_t flags,
                                 PyObject *names)
{
    Py_ssize_t positional = PyVectorcall_NARGS(flags);
    Py_ssize_t count = positional + (names ? PyTuple_GET_SIZE(names) : 0);
    PyObject *small[MOST_ON_STACK + 1];
    PyObject **all = count <= MOST_ON_STACK ? small : PyMem_New(PyObject *, (size_t)count + 1);
    if (all == NULL) {
        return PyErr_NoMemory();
    }
    all[0] = self->first;
    if (count > 0) {
        memcpy(all + 1, args, (size_t)count * sizeof *all);
    }
    PyObject *result = frame_hook_vectorcall(self->compiler, self->function, all,
                                             (size_t)positional + 1, names);
    if (all != small) {
        PyMem_Free(all);
    }
    return result;
}

static PyObject *CompiledCall_vectorcall(PyObject *object, PyObject *const *args, size_t flags,
                                         PyObject *names)
{
    CompiledCall *self = (CompiledCall *)object;
    if (self->compiler == NULL) {
        PyErr_SetString(PyExc_TypeError, "a CompiledCall is called before __init__");
        return NULL;
    }
    Py_INCREF(self); /* the program may let go of it while it runs */
    PyObject *result = self->first == NULL
                           ? frame_hook_vectorcall(self->compiler, self->function, args, flags, names)
                           : call_with_first(self, args, flags, names);
    Py_DECREF(self);
    return result;
}

static PyObject *CompiledCall_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                                  PyObject *Py_UNUSED(keywords))
{
    CompiledCall *self = (CompiledCall *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = CompiledCall_vectorcall;
    }
    return (PyObject *)self;
}

static int CompiledCall_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"compiler", "function", "first", NULL};
    CompiledCall *self = (CompiledCall *)object;
    PyObject *compiler, *function, *first = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!|O:CompiledCall", names,
                                     &FrameCompiler_Type, &compiler, &PyFunction_Type, &function,
                                     &first)) {
        return -1;
    }
    if (self->compiler != NULL) {
        PyErr_SetString(PyExc_TypeError, "a CompiledCall is made once: __init__ was called again");
        return -1;
    }
    self->compiler = (FrameCompiler *)Py_NewRef(compiler);
    self->function = Py_NewRef(function);
    self->first = Py_XNewRef(first);
    /* A subclass may have a `__call__`, for those who read how it is called; calls come here. */
    Py_TYPE(self)->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    return 0;
}

static int CompiledCall_traverse(PyObject *object, visitproc visit, void *arg)
{
    CompiledCall *self = (CompiledCall *)object;
    Py_VISIT(self->compiler);
    Py_VISIT(self->function);
    Py_VISIT(self->first);
    return 0;
}

static int CompiledCall_clear(PyObject *object)
{
    CompiledCall *self = (CompiledCall *)object;
    Py_CLEAR(self->compiler);
    Py_CLEAR(self->function);
    Py_CLEAR(self->first);
    return 0;
}

static void CompiledCall_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    CompiledCall_clear(object);
    Py_TYPE(object)->tp_free(object);
}

PyDoc_STRVAR(CompiledCall_doc,
             "CompiledCall(compiler, function, first=…)\n--\n\n"
             "A callable: `compiler.call(function, (first, *args), kwargs)`.\n\n"
             "May have subclasses, whose own `__call__` is not run by a call.");

PyTypeObject CompiledCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.CompiledCall",
    .tp_basicsize = sizeof(CompiledCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_BASETYPE,
    .tp_doc = CompiledCall_doc,
    .tp_new = CompiledCall_new,
    .tp_init = CompiledCall_init,
    .tp_dealloc = CompiledCall_dealloc,
    .tp_traverse = CompiledCall_traverse,
    .tp_clear = CompiledCall_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CompiledCall, vectorcall),
};
