/* The extension module: its functions and types. Imports without torch; `attach_torch` comes before
   tensors are read. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "call_plan.h"
#include "compiled_call.h"
#include "continuation.h"
#include "cpu_kernel.h"
#include "gpu_kernel.h"
#include "frame_hook.h"
#include "guard_program.h"
#include "machine_code.h"
#include "history.h"
#include "profiling.h"
#include "random_draws.h"
#include "shared_memory.h"
#include "tensor_access.h"
#include "torch_state.h"
#include "training_call.h"

PyDoc_STRVAR(
    attach_torch_doc,
    "attach_torch(path, tensor_type, parameter_type, samples, key_set_of, /)\n--\n\n"
    "Find torch's C functions and the layout of its tensor objects.\n\n"
    "`path` is torch._C's file; `samples` a tuple of (tensor, tensor._cdata, dispatch key set\n"
    "as an int), tensors of several kinds; `key_set_of(tensor)` gives the key set as an int\n"
    "where it cannot be read from memory. Returns whether it can. ImportError: this torch is\n"
    "not one that fusewright knows.");

PyDoc_STRVAR(
    dispatch_state_doc,
    "dispatch_state()\n--\n\n"
    "This thread's included and excluded dispatch keys as a pair of ints that means something\n"
    "only when compared with another; None where they cannot be read from memory.");

PyDoc_STRVAR(torch_states_doc,
             "torch_states()\n--\n\n"
             "A dict of torch's global states by name, as a `state` test takes them: those that\n"
             "this torch has functions for. The numbers mean something only when compared.");

PyDoc_STRVAR(
    read_tensor_doc,
    "read_tensor(tensor, /)\n--\n\n"
    "(key set, dtype, device type, device index, requires_grad, sizes, strides) as a `tensor`\n"
    "test takes them. ValueError: a tensor without plain sizes, such as a nested one.");

PyDoc_STRVAR(
    first_elsewhere_doc,
    "first_elsewhere(inputs, addresses, /)\n--\n\n"
    "The place of the first tensor in the list `inputs` whose memory does not begin at its address\n"
    "in `addresses`, 64-bit integers of the machine; -1: all do. An address of 0 fits each input.");

PyDoc_STRVAR(run_only_doc, "run_only(function, args, kwargs, /)\n--\n\n"
                           "`function(*args, **kwargs)`, in which frames run the entries that hold for\n"
                           "them, and no FrameCompiler is asked for others.");

PyDoc_STRVAR(is_installed_doc, "is_installed()\n--\n\n"
                               "Whether the interpreter evaluates frames through the hook now.");

PyDoc_STRVAR(lacking_features_doc,
             "lacking_features(names, /)\n--\n\n"
             "Those of the processor features in a tuple, such as `avx2`, that this machine lacks\n"
             "or that are unknown.");

PyDoc_STRVAR(set_profiler_doc,
             "set_profiler(begin, forced)\n--\n\n"
             "Call `begin(file, line, kernel)` ahead of each kernel and library call of plans while\n"
             "torch's profiler is on, or always if `forced`. What it returns has an `__exit__`, which\n"
             "is called behind it; None: nothing is. begin=None: nobody is told.");

PyDoc_STRVAR(checksum_doc,
             "checksum(memory, /)\n--\n\n"
             "16 bytes that damage of the memory changes: four CRC-32C of interleaved words. The\n"
             "interpreter lock is released meanwhile. ValueError: not a multiple of 32 bytes.");

PyDoc_STRVAR(draw_bernoulli_doc,
             "draw_bernoulli(generator, result, count, probability, /)\n--\n\n"
             "Draw `count` truth values from a CPU generator of torch's into a contiguous bool tensor,\n"
             "as `bernoulli_` does where it makes numbers one by one. No other thread that holds the\n"
             "interpreter lock draws meanwhile. ValueError: an unknown state, or not a probability.");

PyDoc_STRVAR(size_doc, "size_of(tensor, dimension, /)\n--\n\n"
                       "`tensor.size(dimension)`, in a tenth of the time.");

PyDoc_STRVAR(stride_doc, "stride_of(tensor, dimension, /)\n--\n\n"
                         "`tensor.stride(dimension)`, in a tenth of the time.");

PyDoc_STRVAR(history_forward_doc,
             "history_forward(node, call, /, *inputs)\n--\n\n"
             "The forward of an autograd function: gives `node` what `call`, a HistoryCall, saves, and\n"
             "returns the outputs that are to lead to `inputs`.");

PyDoc_STRVAR(history_backward_doc,
             "history_backward(node, /, *gradients)\n--\n\n"
             "The `apply` of such a node: from the gradients of its outputs, or None, to those of the\n"
             "call and its inputs.");

static PyMethodDef functions[] = {
    {"attach_torch", tensor_access_attach, METH_VARARGS, attach_torch_doc},
    {"dispatch_state", guard_dispatch_state, METH_NOARGS, dispatch_state_doc},
    {"torch_states", torch_states, METH_NOARGS, torch_states_doc},
    {"read_tensor", guard_read_tensor, METH_O, read_tensor_doc},
    {"first_elsewhere", tensor_access_first_elsewhere, METH_VARARGS, first_elsewhere_doc},
    {"holders_of", shared_memory_holders_of, METH_VARARGS, shared_memory_holders_of_doc},
    {"use_of", shared_memory_use_of, METH_VARARGS, shared_memory_use_of_doc},
    {"names_of", shared_memory_names_of, METH_O, shared_memory_names_of_doc},
    {"run_only", (PyCFunction)(void (*)(void))frame_compiler_run_only, METH_FASTCALL,
     run_only_doc},
    {"lacking_features", machine_code_lacking, METH_VARARGS, lacking_features_doc},
    {"set_profiler", profiling_set, METH_VARARGS, set_profiler_doc},
    {"draw_bernoulli", random_draws_bernoulli, METH_VARARGS, draw_bernoulli_doc},
    {"checksum", machine_code_checksum, METH_VARARGS, checksum_doc},
    {"size_of", (PyCFunction)(void (*)(void))tensor_access_size, METH_FASTCALL, size_doc},
    {"stride_of", (PyCFunction)(void (*)(void))tensor_access_stride, METH_FASTCALL, stride_doc},
    {"history_forward", (PyCFunction)(void (*)(void))history_forward, METH_FASTCALL,
     history_forward_doc},
    {"history_backward", (PyCFunction)(void (*)(void))history_backward, METH_FASTCALL,
     history_backward_doc},
    {"is_installed", frame_hook_is_installed, METH_NOARGS, is_installed_doc},
    {NULL},
};

/* Make a function of the module one that classes bind as a method. */
static int make_method(PyObject *module, const char *name)
{
    PyObject *function = PyObject_GetAttrString(module, name);
    PyObject *method = function == NULL ? NULL : PyInstanceMethod_New(function);
    int refused = method == NULL ? -1 : PyModule_AddObjectRef(module, name, method);
    Py_XDECREF(function);
    Py_XDECREF(method);
    return refused;
}

static int execute(PyObject *module)
{
    static PyTypeObject *const types[] = {
        &CpuKernel_Type, &GpuKernel_Type,     &GuardProgram_Type, &Entry_Type,
        &Disabled_Type,  &FrameCompiler_Type, &Continuation_Type, &CompiledCall_Type,
        &CallPlan_Type,  &History_Type,       &HistoryCall_Type,  &TrainingCall_Type,
        &MachineCode_Type,
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    if (make_method(module, "history_backward") < 0) {
        return -1;
    }
    return frame_compiler_setup(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fusewright.native._extension",
    .m_doc = "The part of fusewright that runs at every call, in C.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__extension(void)
{
    return PyModuleDef_Init(&definition);
}
