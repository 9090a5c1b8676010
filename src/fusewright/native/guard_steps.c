/* The steps of a guard program: each loads one object from another, or from the frame.
   Dictionaries, lists and instance dictionaries are read directly, past descriptors and overridden
   methods. */
#include "guard_program.h"

#include <string.h>

static PyObject *load_local(GuardStep *step, PyObject *Py_UNUSED(base), const GuardContext *context)
{
    return Py_XNewRef(context->locals[step->number]);
}

static PyObject *load_globals(GuardStep *Py_UNUSED(step), PyObject *Py_UNUSED(base),
                              const GuardContext *context)
{
    return context->function ? Py_NewRef(context->function->func_globals) : NULL;
}

static PyObject *load_builtins(GuardStep *Py_UNUSED(step), PyObject *Py_UNUSED(base),
                               const GuardContext *context)
{
    return context->function ? Py_NewRef(context->function->func_builtins) : NULL;
}

static PyObject *load_modules(GuardStep *Py_UNUSED(step), PyObject *Py_UNUSED(base),
                              const GuardContext *Py_UNUSED(context))
{
    return Py_XNewRef(PySys_GetObject("modules"));
}

static PyObject *load_cell(GuardStep *step, PyObject *Py_UNUSED(base), const GuardContext *context)
{
    PyObject *closure = context->function ? context->function->func_closure : NULL;
    if (closure == NULL || step->number >= PyTuple_GET_SIZE(closure)) {
        return NULL;
    }
    return Py_NewRef(PyTuple_GET_ITEM(closure, step->number));
}

/* A constant given as a weak reference is what it refers to: not there once that is gone. */
static PyObject *load_constant(GuardStep *step, PyObject *Py_UNUSED(base),
                               const GuardContext *Py_UNUSED(context))
{
    if (!PyWeakref_CheckRef(step->operand)) {
        return Py_NewRef(step->operand);
    }
    PyObject *object = ((PyWeakReference *)step->operand)->wr_object;
    return object == Py_None ? NULL : Py_NewRef(object);
}

static PyObject *load_call(GuardStep *step, PyObject *Py_UNUSED(base),
                           const GuardContext *Py_UNUSED(context))
{
    return PyObject_CallNoArgs(step->operand);
}

static PyObject *load_cell_contents(GuardStep *Py_UNUSED(step), PyObject *base,
                                    const GuardContext *Py_UNUSED(context))
{
    return PyCell_Check(base) ? PyCell_Get(base) : NULL;
}

static PyObject *load_attribute(GuardStep *step, PyObject *base,
                                const GuardContext *Py_UNUSED(context))
{
    return PyObject_GetAttr(base, step->operand);
}

static PyObject *load_instance_dict(GuardStep *Py_UNUSED(step), PyObject *base,
                                    const GuardContext *Py_UNUSED(context))
{
    return PyObject_GenericGetDict(base, NULL);
}

static PyObject *load_type_attribute(GuardStep *step, PyObject *base,
                                     const GuardContext *Py_UNUSED(context))
{
    return PyType_Check(base) ? Py_XNewRef(_PyType_Lookup((PyTypeObject *)base, step->operand))
                              : NULL;
}

static PyObject *load_item(GuardStep *step, PyObject *base, const GuardContext *Py_UNUSED(context))
{
    if (PyTuple_Check(base) && step->number < PyTuple_GET_SIZE(base)) {
        return Py_NewRef(PyTuple_GET_ITEM(base, step->number));
    }
    if (PyList_Check(base) && step->number < PyList_GET_SIZE(base)) {
        return Py_NewRef(PyList_GET_ITEM(base, step->number));
    }
    PyTypeObject *cls = Py_TYPE(base);
    while (cls != NULL && strcmp(cls->tp_name, "collections.deque") != 0) {
        cls = cls->tp_base; /* past a `__getitem__` that a subclass overrides */
    }
    return cls == NULL ? NULL : cls->tp_as_sequence->sq_item(base, step->number);
}

static PyObject *load_dict_item(GuardStep *step, PyObject *base,
                                const GuardContext *Py_UNUSED(context))
{
    if (!PyDict_Check(base)) {
        return NULL;
    }
    return Py_XNewRef(PyDict_GetItemWithError(base, step->operand));
}

/* The entry of a dictionary at a position of its order, borrowed; whether there is one. */
static bool entry_at(PyObject *base, Py_ssize_t number, PyObject **key, PyObject **value)
{
    if (!PyDict_Check(base)) {
        return false;
    }
    if (PyODict_Check(base)) { /* its order is not that of the table beneath it */
        PyObject *keys = PySequence_List(base);
        bool found = keys != NULL && number < PyList_GET_SIZE(keys);
        *key = found ? PyList_GET_ITEM(keys, number) : NULL;
        *value = found ? PyDict_GetItemWithError(base, *key) : NULL;
        Py_XDECREF(keys);
        return *value != NULL;
    }
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; PyDict_Next(base, &position, key, value); i++) {
        if (i == number) {
            return true;
        }
    }
    return false;
}

static PyObject *load_dict_key(GuardStep *step, PyObject *base,
                               const GuardContext *Py_UNUSED(context))
{
    PyObject *key, *value;
    return entry_at(base, step->number, &key, &value) ? Py_NewRef(key) : NULL;
}

static PyObject *load_dict_value(GuardStep *step, PyObject *base,
                                 const GuardContext *Py_UNUSED(context))
{
    PyObject *key, *value;
    return entry_at(base, step->number, &key, &value) ? Py_NewRef(value) : NULL;
}

static PyObject *load_reduced(GuardStep *Py_UNUSED(step), PyObject *base,
                              const GuardContext *Py_UNUSED(context))
{
    return PyObject_CallMethod(base, "__reduce__", NULL);
}

static int take_referent(PyObject *referent, void *found)
{
    *(PyObject **)found = referent;
    return 0;
}

/* What a view of a dictionary or a mapping proxy shows: the one object that it refers to. */
static PyObject *load_shown(GuardStep *Py_UNUSED(step), PyObject *base,
                            const GuardContext *Py_UNUSED(context))
{
    bool shows = PyDictViewSet_Check(base) || PyDictValues_Check(base) ||
                 Py_IS_TYPE(base, &PyDictProxy_Type);
    PyObject *found = NULL;
    if (shows) {
        Py_TYPE(base)->tp_traverse(base, take_referent, &found);
    }
    return Py_XNewRef(found);
}

static PyObject *load_number(GuardStep *Py_UNUSED(step), PyObject *base,
                             const GuardContext *Py_UNUSED(context))
{
    return PyObject_CallMethod(base, "item", NULL);
}

/* The thread's own state is no object: its tests read it themselves. */
static PyObject *load_thread(GuardStep *Py_UNUSED(step), PyObject *Py_UNUSED(base),
                             const GuardContext *Py_UNUSED(context))
{
    return Py_NewRef(Py_None);
}

typedef enum { NO_OPERAND, LOCAL_NAME, NAME, POSITION, OBJECT } OperandKind;

typedef struct {
    const char *name;
    StepLoad load;
    OperandKind operand;
    bool root;
    Reads reads; /* of the base; for a root, READS_IDENTITY when it is worth remembering */
} StepKind;

static const StepKind step_kinds[] = {
    {"local", load_local, LOCAL_NAME, true, READS_IDENTITY},
    {"globals", load_globals, NO_OPERAND, true, READS_IDENTITY},
    {"builtins", load_builtins, NO_OPERAND, true, READS_IDENTITY},
    {"modules", load_modules, NO_OPERAND, true, READS_IDENTITY},
    {"cell", load_cell, POSITION, true, READS_IDENTITY},
    {"constant", load_constant, OBJECT, true, READS_IDENTITY},
    {"call", load_call, OBJECT, true, READS_ANYTHING},
    {"thread", load_thread, NO_OPERAND, true, READS_ANYTHING},
    {"cell_contents", load_cell_contents, NO_OPERAND, false, READS_CELL},
    {"attribute", load_attribute, NAME, false, READS_FIELD},
    {"instance_dict", load_instance_dict, NO_OPERAND, false, READS_INSTANCE},
    {"type_attribute", load_type_attribute, NAME, false, READS_CLASS},
    {"item", load_item, POSITION, false, READS_ITEM},
    {"dict_item", load_dict_item, OBJECT, false, READS_DICTIONARY},
    {"dict_key", load_dict_key, POSITION, false, READS_DICTIONARY},
    {"dict_value", load_dict_value, POSITION, false, READS_DICTIONARY},
    {"reduced", load_reduced, NO_OPERAND, false, READS_ANYTHING},
    {"shown", load_shown, NO_OPERAND, false, READS_ANYTHING},
    {"number", load_number, NO_OPERAND, false, READS_ANYTHING},
};

static const StepKind *find_kind(PyObject *name)
{
    for (size_t i = 0; PyUnicode_Check(name) && i < Py_ARRAY_LENGTH(step_kinds); i++) {
        if (PyUnicode_CompareWithASCIIString(name, step_kinds[i].name) == 0) {
            return &step_kinds[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "unknown guard step %R", name);
    return NULL;
}

static int take_position(GuardStep *step, PyObject *operand)
{
    Py_ssize_t number = PyLong_AsSsize_t(operand);
    if (number == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (number < 0 || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a guard step cannot have the position %zd", number);
        return -1;
    }
    step->number = (int32_t)number;
    return 0;
}

static int take_name(GuardStep *step, PyObject *operand)
{
    if (!PyUnicode_CheckExact(operand)) {
        PyErr_Format(PyExc_TypeError, "a name in a guard step must be a str, not %R", operand);
        return -1;
    }
    step->operand = Py_NewRef(operand);
    PyUnicode_InternInPlace(&step->operand);
    return 0;
}

static int take_operand(GuardStep *step, OperandKind kind, PyObject *operand, PyObject *local_names)
{
    switch (kind) {
    case LOCAL_NAME:
        step->number = (int32_t)PySequence_Index(local_names, operand); /* few names */
        return step->number < 0 ? -1 : 0;
    case POSITION:
        return take_position(step, operand);
    case NAME:
        return take_name(step, operand);
    case OBJECT:
        return PyUnicode_CheckExact(operand) ? take_name(step, operand)
                                             : (step->operand = Py_NewRef(operand), 0);
    case NO_OPERAND:
        break;
    }
    return 0;
}

int guard_step_build(GuardStep *step, PyObject *description, PyObject *local_names)
{
    Py_ssize_t size = PyTuple_Check(description) ? PyTuple_GET_SIZE(description) : 0;
    const StepKind *kind = size > 0 ? find_kind(PyTuple_GET_ITEM(description, 0)) : NULL;
    if (kind == NULL || size != 1 + (kind->operand != NO_OPERAND)) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "malformed guard step %R", description);
        }
        return -1;
    }
    step->load = kind->load;
    step->root = kind->root;
    step->from_local = kind->load == load_local;
    step->reads = kind->reads;
    PyObject *operand = size > 1 ? PyTuple_GET_ITEM(description, 1) : NULL;
    return take_operand(step, kind->operand, operand, local_names);
}
