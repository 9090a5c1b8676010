/* CpuKernel: a callable for one piece of generated machine code. A call reads the tensors' data
   pointers, divides the iterations among threads, and runs the code on them. */
#include "cpu_kernel.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "guarded_call.h"
#include "profiling.h"
#include "tensor_access.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    KernelFunction function;
    Py_ssize_t tensor_count;
    Py_ssize_t size_count;
    PyObject *name;
    PyObject *owner; /* what keeps the machine code; NULL: the caller does */
    PyObject *weak_references;
} CpuKernel;

/* One call: what each thread of the team needs to find its share, and the fault of any of them. */
typedef struct {
    KernelFunction function;
    void **arguments;
    int64_t iterations;
    int64_t fault;
} Launch;

/* Arguments up to this many live on the C stack of the call. */
#define STACK_ARGUMENTS 64

/* Run by each thread of the team. The team may be smaller than was asked for (a nested region, a
   thread limit), so that its size is asked here. */
static void run_share(void *data)
{
    Launch *launch = data;
    int64_t team = torch_library.get_team_size();
    int64_t share = (launch->iterations + team - 1) / team;
    int64_t begin = torch_library.get_thread_number() * share;
    int64_t end = Py_MIN(begin + share, launch->iterations);
    if (begin >= end) {
        return;
    }
    int64_t fault = launch->function(launch->arguments, begin, end);
    if (fault != 0) {
        __atomic_store_n(&launch->fault, fault, __ATOMIC_RELAXED);
    }
}

static int64_t count_threads(int64_t iterations, int64_t grain)
{
    if (torch_library.parallel == NULL || iterations <= grain || torch_library.in_parallel()) {
        return 1;
    }
    int64_t shares = (iterations - 1) / grain + 1;
    return Py_MIN(shares, (int64_t)torch_library.get_thread_count());
}

/* Work of one grain or less takes microseconds and keeps the interpreter lock; longer work lets
   other Python threads run. */
static void run_launch(Launch *launch, int64_t grain)
{
    if (launch->iterations <= grain) {
        launch->fault = launch->function(launch->arguments, 0, launch->iterations);
        return;
    }
    int64_t threads = count_threads(launch->iterations, grain);
    Py_BEGIN_ALLOW_THREADS
    if (threads > 1) {
        torch_library.parallel(run_share, launch, (unsigned)threads, 0);
    } else {
        launch->fault = launch->function(launch->arguments, 0, launch->iterations);
    }
    Py_END_ALLOW_THREADS
}

/* What eager raises, for the fault that a kernel has returned. */
static PyObject *raise_fault(const CpuKernel *self, int64_t fault)
{
    switch (fault) {
    case INDEX_OUT_OF_RANGE:
        return PyErr_Format(PyExc_IndexError, "index out of range in compiled kernel %U",
                            self->name);
    case DIVISION_BY_ZERO:
        return PyErr_Format(PyExc_RuntimeError, "ZeroDivisionError in compiled kernel %U",
                            self->name);
    default:
        return PyErr_Format(PyExc_SystemError, "%U returned %lld, which is no code of a fault",
                            self->name, (long long)fault);
    }
}

int cpu_kernel_number(PyObject *number, int64_t *slot)
{
    if (PyFloat_CheckExact(number)) {
        double real = PyFloat_AS_DOUBLE(number);
        memcpy(slot, &real, sizeof *slot);
        return 0;
    }
    *slot = PyLong_AsLongLong(number);
    return *slot == -1 && PyErr_Occurred() ? -1 : 0;
}

int cpu_kernel_refuse(PyObject *kernel, Py_ssize_t position)
{
    PyErr_Format(PyExc_RuntimeError, "%U: tensor argument %zd has no data in memory",
                 ((CpuKernel *)kernel)->name, position);
    return -1;
}

bool cpu_kernel_takes(PyObject *object, Py_ssize_t tensors, Py_ssize_t numbers)
{
    CpuKernel *kernel = (CpuKernel *)object;
    return Py_IS_TYPE(object, &CpuKernel_Type) && kernel->tensor_count == tensors &&
           kernel->size_count == numbers;
}

int cpu_kernel_launch(PyObject *kernel, void **arguments, int64_t units, int64_t grain)
{
    CpuKernel *self = (CpuKernel *)kernel;
    if (grain < 1) {
        PyErr_Format(PyExc_ValueError, "%U: the grain must be at least 1", self->name);
        return -1;
    }
    Launch launch = {self->function, arguments, units, 0};
    if (units > 0) {
        run_launch(&launch, grain);
    }
    if (launch.fault != 0) {
        raise_fault(self, launch.fault);
        return -1;
    }
    return 0;
}

/* The pointer of each tensor, then each number, one slot each. */
static int fill_slots(CpuKernel *self, PyObject *const *args, void **slots)
{
    for (Py_ssize_t i = 0; i < self->tensor_count; i++) {
        if (!tensor_access_is_tensor(args[i])) {
            PyErr_Format(PyExc_TypeError, "%U: argument %zd must be a tensor, not %s", self->name,
                         i, Py_TYPE(args[i])->tp_name);
            return -1;
        }
        if (torch_library.get_data_pointer(tensor_access_handle(args[i]), &slots[i]) != 0) {
            return cpu_kernel_refuse((PyObject *)self, i);
        }
    }
    for (Py_ssize_t i = self->tensor_count; i < self->tensor_count + self->size_count; i++) {
        if (cpu_kernel_number(args[i], (int64_t *)&slots[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *launch_kernel(CpuKernel *self, PyObject *const *args, void **slots)
{
    Py_ssize_t count = self->tensor_count + self->size_count;
    int64_t iterations = PyLong_AsLongLong(args[count]);
    int64_t grain = PyLong_AsLongLong(args[count + 1]);
    if (PyErr_Occurred() || fill_slots(self, args, slots) < 0 ||
        cpu_kernel_launch((PyObject *)self, slots, iterations, grain) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *call_kernel(PyObject *object, PyObject *const *args, size_t flagged_count,
                             PyObject *names)
{
    CpuKernel *self = (CpuKernel *)object;
    Py_ssize_t given = PyVectorcall_NARGS(flagged_count);
    Py_ssize_t count = self->tensor_count + self->size_count;
    if (given != count + 2 || (names != NULL && PyTuple_GET_SIZE(names) > 0)) {
        PyErr_Format(
            PyExc_TypeError,
            "%U takes %zd positional arguments (%zd tensors, %zd sizes, iterations, grain); "
            "%zd given",
            self->name, count + 2, self->tensor_count, self->size_count, given);
        return NULL;
    }
    PyObject *guard = profiling_is_on() ? profiling_begin(NULL, 0, object) : NULL;
    void *stack_slots[STACK_ARGUMENTS];
    void **slots = stack_slots;
    if (count > STACK_ARGUMENTS) {
        slots = PyMem_Malloc((size_t)count * sizeof *slots);
    }
    PyObject *result = slots == NULL ? PyErr_NoMemory() : launch_kernel(self, args, slots);
    if (slots != stack_slots) {
        PyMem_Free(slots);
    }
    profiling_end(guard);
    return result;
}

static PyObject *CpuKernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"address", "tensor_count", "size_count", "name", "owner", NULL};
    unsigned long long address;
    Py_ssize_t tensor_count, size_count;
    PyObject *name, *owner = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KnnU|O:CpuKernel", names, &address,
                                     &tensor_count, &size_count, &name, &owner)) {
        return NULL;
    }
    if (address == 0 || tensor_count < 0 || size_count < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "CpuKernel needs a code address and counts of at least 0");
        return NULL;
    }
    CpuKernel *self = (CpuKernel *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = call_kernel;
    self->function = (KernelFunction)(uintptr_t)address;
    self->tensor_count = tensor_count;
    self->size_count = size_count;
    self->name = Py_NewRef(name);
    self->owner = Py_XNewRef(owner);
    return (PyObject *)self;
}

static void CpuKernel_dealloc(PyObject *object)
{
    if (((CpuKernel *)object)->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    Py_DECREF(((CpuKernel *)object)->name);
    Py_XDECREF(((CpuKernel *)object)->owner);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *CpuKernel_repr(PyObject *object)
{
    CpuKernel *self = (CpuKernel *)object;
    return PyUnicode_FromFormat("CpuKernel(%R, %zd tensors, %zd sizes)", self->name,
                                self->tensor_count, self->size_count);
}

PyDoc_STRVAR(
    run_guarded_doc,
    "run_guarded(arguments, begin, end, /)\n--\n\n"
    "Run the code for `begin` to `end` on this thread, holding the interpreter lock; `arguments`\n"
    "is the address of its 8-byte slots. Returns the address that the code touched though it may\n"
    "not, where it then stopped (0: the processor does not tell which); None where it did all\n"
    "its work. Raises what a launch raises for the fault that the code returned.");

static PyObject *run_guarded(PyObject *object, PyObject *args)
{
    CpuKernel *self = (CpuKernel *)object;
    unsigned long long arguments;
    long long begin, end;
    int64_t fault = 0;
    void *touched = NULL;
    if (!PyArg_ParseTuple(args, "KLL:run_guarded", &arguments, &begin, &end)) {
        return NULL;
    }
    int stopped = guarded_call(self->function, (void **)(uintptr_t)arguments, begin, end, &fault,
                               &touched);
    if (stopped < 0) {
        return NULL;
    }
    if (stopped) {
        return PyLong_FromVoidPtr(touched);
    }
    if (fault != 0) {
        return raise_fault(self, fault);
    }
    Py_RETURN_NONE;
}

static PyMethodDef CpuKernel_methods[] = {
    {"run_guarded", run_guarded, METH_VARARGS, run_guarded_doc},
    {NULL},
};

static PyMemberDef CpuKernel_members[] = {
    {"name", T_OBJECT, offsetof(CpuKernel, name), READONLY, "the kernel's name, as in its source"},
    {"tensor_count", T_PYSSIZET, offsetof(CpuKernel, tensor_count), READONLY,
     "how many tensors a call takes"},
    {"size_count", T_PYSSIZET, offsetof(CpuKernel, size_count), READONLY,
     "how many sizes a call takes"},
    {NULL},
};

PyDoc_STRVAR(
    CpuKernel_doc,
    "CpuKernel(address, tensor_count, size_count, name, owner=None)\n--\n\n"
    "Machine code `int64_t kernel(void **arguments, int64_t begin, int64_t end)` at `address`\n"
    "as a callable.\n\n"
    "`kernel(tensor, ..., size, ..., iterations, grain)` calls it with the tensors' data\n"
    "pointers (storage offsets included) followed by the sizes, one 8-byte slot each, for\n"
    "`begin` to `end` within `iterations`. More than `grain` iterations are divided in\n"
    "contiguous shares among torch's threads, and the interpreter lock is released meanwhile.\n"
    "Returns None. TypeError: wrong count or kind of argument; RuntimeError: a tensor has no\n"
    "memory. IndexError, RuntimeError: the code has returned 1 for an index out of range, or 2\n"
    "for a division by zero; 0 is none. `owner` keeps the machine code, or the caller does.");

PyTypeObject CpuKernel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.CpuKernel",
    .tp_basicsize = sizeof(CpuKernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = CpuKernel_doc,
    .tp_new = CpuKernel_new,
    .tp_dealloc = CpuKernel_dealloc,
    .tp_repr = CpuKernel_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CpuKernel, vectorcall),
    .tp_weaklistoffset = offsetof(CpuKernel, weak_references),
    .tp_methods = CpuKernel_methods,
    .tp_members = CpuKernel_members,
};
