/* Reads torch's global state in a few nanoseconds each, where the same question asked of its Python
   functions takes a hundred. The functions are found by their linkage names; one that this torch
   does not have is left out, and guards ask Python instead. */
#include "torch_state.h"

/* The states are members of torch's global context, or of the calling thread. Each function returns
   a small integer, an enumeration or a bool, of which only so many low bytes are defined; one that
   takes no context ignores it, in every calling convention that torch supports. */
typedef struct {
    const char *name;
    const char *symbol;
    int bytes;
    int backend, operation; /* second and third argument */
    uint64_t (*read)(const void *context, int backend, int operation); /* NULL: not found */
} State;

enum { CUDA = 1, CPU = 2 }; /* at::Float32Backend; the CPU's is called MKLDNN there */
enum { MATMUL = 3 };        /* at::Float32Op */

#define PRECISION "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE"

static State states[] = {
    {"default_dtype", "_ZN3c1031get_default_dtype_as_scalartypeEv", 1, 0, 0, NULL},
    {"deterministic_algorithms", "_ZNK2at7Context23deterministicAlgorithmsEv", 1, 0, 0, NULL},
    {"deterministic_warn_only", "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv", 1, 0, 0,
     NULL},
    {"deterministic_fill", "_ZNK2at7Context36deterministicFillUninitializedMemoryEv", 1, 0, 0,
     NULL},
    {"cuda_matmul_precision", PRECISION, 4, CUDA, MATMUL, NULL},
    {"cpu_matmul_precision", PRECISION, 4, CPU, MATMUL, NULL},
    {"function_modes", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", 8, 0, 0, NULL},
    {"function_state", "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", 1, 0, 0, NULL},
};

static const void *context;

static void load_states(void)
{
    const void *(*get_context)(void) = torch_library_symbol("_ZN2at13globalContextEv");
    if (get_context == NULL) {
        return;
    }
    context = get_context();
    for (size_t i = 0; i < Py_ARRAY_LENGTH(states); i++) {
        states[i].read = torch_library_symbol(states[i].symbol);
    }
}

uint64_t torch_state_read(int state)
{
    const State *of = &states[state];
    uint64_t value = of->read(context, of->backend, of->operation);
    return value & (UINT64_MAX >> (64 - 8 * of->bytes));
}

int torch_state_find(PyObject *name)
{
    if (context == NULL) {
        load_states();
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(states); i++) {
        if (states[i].read != NULL && PyUnicode_CompareWithASCIIString(name, states[i].name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

PyObject *torch_states(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (context == NULL) {
        load_states();
    }
    PyObject *found = PyDict_New();
    for (size_t i = 0; found != NULL && i < Py_ARRAY_LENGTH(states); i++) {
        if (states[i].read == NULL) {
            continue;
        }
        PyObject *value = PyLong_FromUnsignedLongLong(torch_state_read((int)i));
        if (value == NULL || PyDict_SetItemString(found, states[i].name, value) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(value);
    }
    return found;
}
