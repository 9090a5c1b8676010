/* Tells profilers what runs: calls a Python function around each kernel and library call of a plan,
   where a profiler looks. */
#include "profiling.h"

PyObject *profiling_begin_function;
bool profiling_is_forced;

PyObject *profiling_begin(PyObject *file, int64_t line, PyObject *kernel)
{
    PyObject *guard =
        PyObject_CallFunction(profiling_begin_function, "OLO", file == NULL ? Py_None : file,
                              (long long)line, kernel == NULL ? Py_None : kernel);
    if (guard == Py_None) {
        Py_CLEAR(guard);
    }
    if (guard == NULL) {
        PyErr_Clear(); /* what is measured counts more than that it is */
    }
    return guard;
}

void profiling_end(PyObject *guard)
{
    if (guard == NULL) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result =
        PyObject_CallMethod(guard, "__exit__", "OOO", Py_None, Py_None, Py_None);
    if (result == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(result);
    Py_DECREF(guard);
    PyErr_Restore(type, value, traceback);
}

PyObject *profiling_set(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *function;
    int forced;
    if (!PyArg_ParseTuple(args, "Op", &function, &forced)) {
        return NULL;
    }
    Py_XSETREF(profiling_begin_function, function == Py_None ? NULL : Py_NewRef(function));
    profiling_is_forced = forced;
    Py_RETURN_NONE;
}
