/* GpuKernel: a callable for one kernel on GPUs. A call reads the tensors' data pointers, chooses the
   machine code for the tensors' GPU and for how the pointers are aligned, and hands it to the
   driver. */
#include "gpu_kernel.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

/* Functions of the CUDA driver; each returns 0 or an error's number. */
typedef int (*LaunchFunction)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, void *stream, void **parameters, void **extra);
typedef int (*GetContextFunction)(void **context);
typedef int (*SetContextFunction)(void *context);

/* Machine code for one GPU, with pointers of one alignment. */
typedef struct {
    int32_t device;
    bool aligned;
    void *context;
    void *function; /* null: there is no machine code, and the kernel runs eagerly */
    unsigned threads;
    unsigned shared_bytes;
    Py_ssize_t hidden; /* pointers behind the kernel's own parameters, which are null */
    void *writer; /* of tables of arguments, where the kernel has one */
    Py_ssize_t writer_values; /* how many values of it one launch writes */
} Variant;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    LaunchFunction launch;
    GetContextFunction get_context;
    SetContextFunction set_context;
    PyObject *get_stream; /* from a device's number to the current stream's handle */
    PyObject *prepare;    /* from (device, aligned) to a variant, as a tuple of ints, or None */
    PyObject *eager;      /* does what the kernel does, for the same arguments */
    PyObject *name;
    PyObject *kinds; /* of the numbers: one letter each */
    PyObject *widths; /* of the tensors: one byte each, as GpuKernel_doc says */
    PyObject *first_values; /* of the table of arguments; empty: they are parameters */
    Py_ssize_t tensor_count;
    Py_ssize_t variant_count;
    Variant *variants;
} GpuKernel;

/* Loads and stores are wider where all pointers are multiples of this. */
#define ALIGNMENT 16

/* As many as fit the parameters of any GPU, 4096 bytes, beside the hidden ones. */
#define MAXIMUM_ARGUMENTS 500

/* Values of a table of arguments, and how many of them one launch may write. */
#define MAXIMUM_TENSORS 8000
#define MAXIMUM_WRITTEN 4096

/* Threads of a program of the kernel that does so. */
#define WRITER_THREADS 128

#define MAXIMUM_HIDDEN 8

#define NO_DEVICE INT32_MIN

/* -1 with an exception, unless the tensor lies on the GPU of those before it: a kernel would read
   memory that its GPU may not see. */
static int check_device(GpuKernel *self, TensorHandle tensor, Py_ssize_t place, int32_t *device)
{
    int32_t own;
    if (torch_library.get_device_index(tensor, &own) != 0) {
        PyErr_Format(PyExc_RuntimeError, "%U: tensor argument %zd has no device", self->name,
                     place);
        return -1;
    }
    if (*device != NO_DEVICE && own != *device) {
        PyErr_Format(PyExc_RuntimeError,
                     "%U: tensor argument %zd is on GPU %d, those before it on GPU %d", self->name,
                     place, (int)own, (int)*device);
        return -1;
    }
    *device = own;
    return 0;
}

/* Put the number that a tensor of the CPU holds, of so many bytes, into a slot. -1 with an
   exception. */
static int fill_value(GpuKernel *self, TensorHandle tensor, Py_ssize_t place, const void *pointer,
                      size_t width, uint64_t *slot)
{
    int32_t type;
    if (pointer == NULL || torch_library.get_device_type(tensor, &type) != 0 ||
        type != torch_library.cpu_device_type) {
        PyErr_Format(PyExc_RuntimeError, "%U: tensor argument %zd is no number of the CPU",
                     self->name, place);
        return -1;
    }
    *slot = 0;
    memcpy(slot, pointer, width);
    return 0;
}

/* The pointer of each tensor, or its value where it is given by value, one slot each; all pointers
   or-ed together; and their GPU. */
static int fill_pointers(GpuKernel *self, const TensorHandle *tensors, uint64_t *slots,
                         uint64_t *all, int32_t *device)
{
    const char *widths = PyBytes_AS_STRING(self->widths);
    for (Py_ssize_t i = 0; i < self->tensor_count; i++) {
        void *pointer;
        if (tensors[i] == NULL || torch_library.get_data_pointer(tensors[i], &pointer) != 0) {
            PyErr_Format(PyExc_RuntimeError, "%U: tensor argument %zd has no data in memory",
                         self->name, i);
            return -1;
        }
        if (widths[i] != 0) {
            if (fill_value(self, tensors[i], i, pointer, (size_t)widths[i], &slots[i]) < 0) {
                return -1;
            }
            continue;
        }
        if (check_device(self, tensors[i], i, device) < 0) {
            return -1;
        }
        slots[i] = (uint64_t)(uintptr_t)pointer;
        *all |= slots[i];
    }
    return 0;
}

/* The handles of the tensors among the arguments. */
static int find_handles(GpuKernel *self, PyObject *const *args, TensorHandle *handles)
{
    for (Py_ssize_t i = 0; i < self->tensor_count; i++) {
        if (!tensor_access_is_tensor(args[i])) {
            PyErr_Format(PyExc_TypeError, "%U: argument %zd must be a tensor, not %s", self->name,
                         i, Py_TYPE(args[i])->tp_name);
            return -1;
        }
        handles[i] = tensor_access_handle(args[i]);
    }
    return 0;
}

/* Each number, one slot each: an integer, of which the driver may read the lower half, or a
   double. */
static int fill_numbers(GpuKernel *self, PyObject *const *args, int64_t *slots)
{
    const char *kinds = PyUnicode_AsUTF8(self->kinds);
    if (kinds == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; kinds[i] != '\0'; i++) {
        if (kinds[i] == 'd') {
            double real = PyFloat_AsDouble(args[i]);
            memcpy(&slots[i], &real, sizeof real);
        } else {
            slots[i] = PyLong_AsLongLong(args[i]);
        }
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

/* Whether the kernel finds its tensors in a table, which is the last of them. */
static bool has_table(const GpuKernel *self)
{
    return PyBytes_GET_SIZE(self->first_values) > 0;
}

/* Read what prepares the machine code gave. -1 with an exception. */
static int read_variant(GpuKernel *self, PyObject *made, Variant *variant)
{
    if (made == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(made)) {
        PyErr_Format(PyExc_TypeError, "%U: what prepares it gave no tuple", self->name);
        return -1;
    }
    unsigned long long context, function;
    unsigned long long writer = 0;
    if (!PyArg_ParseTuple(made, "KKIIn|Kn:GpuKernel.prepare", &context, &function,
                          &variant->threads, &variant->shared_bytes, &variant->hidden, &writer,
                          &variant->writer_values)) {
        return -1;
    }
    if (variant->hidden < 0 || variant->hidden > MAXIMUM_HIDDEN) {
        PyErr_Format(PyExc_ValueError, "%U has %zd hidden parameters", self->name,
                     variant->hidden);
        return -1;
    }
    if (has_table(self) && (writer == 0 || variant->writer_values < 1 ||
                            variant->writer_values > MAXIMUM_WRITTEN)) {
        PyErr_Format(PyExc_ValueError, "%U has a table, and nothing that writes it", self->name);
        return -1;
    }
    variant->writer = (void *)(uintptr_t)writer;
    variant->context = (void *)(uintptr_t)context;
    variant->function = (void *)(uintptr_t)function;
    return 0;
}

/* Ask for the machine code, and keep it. NULL with an exception. */
static Variant *prepare_variant(GpuKernel *self, int32_t device, bool aligned)
{
    PyObject *made =
        PyObject_CallFunction(self->prepare, "iO", (int)device, aligned ? Py_True : Py_False);
    if (made == NULL) {
        return NULL;
    }
    Variant new = {device, aligned, NULL, NULL, 0, 0, 0, NULL, 0};
    int read = read_variant(self, made, &new);
    Py_DECREF(made);
    if (read < 0) {
        return NULL;
    }
    size_t size = (size_t)(self->variant_count + 1) * sizeof(Variant);
    Variant *variants = PyMem_Realloc(self->variants, size);
    if (variants == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    self->variants = variants;
    variants[self->variant_count] = new;
    return &variants[self->variant_count++];
}

static Variant *find_variant(GpuKernel *self, int32_t device, bool aligned)
{
    for (Py_ssize_t i = 0; i < self->variant_count; i++) {
        if (self->variants[i].device == device && self->variants[i].aligned == aligned) {
            return &self->variants[i];
        }
    }
    return prepare_variant(self, device, aligned);
}

/* The handle of the GPU's current stream, which is null for the default one. -1 with an
   exception. */
static int find_stream(GpuKernel *self, int32_t device, void **stream)
{
    PyObject *number = PyLong_FromLong(device);
    if (number == NULL) {
        return -1;
    }
    PyObject *handle = PyObject_CallOneArg(self->get_stream, number);
    Py_DECREF(number);
    if (handle == NULL) {
        return -1;
    }
    *stream = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    return PyErr_Occurred() ? -1 : 0;
}

/* Values that a kernel finds in memory instead of its parameters. */
typedef struct {
    uint64_t *values; /* behind them as many zeros as a launch of the writer may read, too */
    Py_ssize_t count;
    uint64_t address; /* where they go */
} Table;

/* Write a table, on the stream of the launch that reads it. The driver's error, or 0. */
static int write_table(GpuKernel *self, const Variant *variant, const Table *table, void *stream)
{
    int error = 0;
    for (Py_ssize_t begin = 0; error == 0 && begin < table->count;
         begin += variant->writer_values) {
        Py_ssize_t rest = table->count - begin;
        uint32_t count = (uint32_t)Py_MIN(rest, variant->writer_values);
        uint64_t address = table->address + (uint64_t)begin * sizeof *table->values;
        void *parameters[] = {&address, &count, &table->values[begin]};
        error = self->launch(variant->writer, (count + WRITER_THREADS - 1) / WRITER_THREADS, 1, 1,
                             WRITER_THREADS, 1, 1, 0, stream, parameters, NULL);
    }
    return error;
}

/* Launch with the variant's context as this thread's current one. The driver's error, or 0. Other
   threads run meanwhile: the driver waits where too much is launched already, for what only they
   may set free. */
static int launch_variant(GpuKernel *self, const Variant *variant, const Table *table,
                          unsigned programs, void *stream, void **parameters)
{
    void *before = NULL;
    int error = self->get_context(&before);
    bool elsewhere = error == 0 && before != variant->context;
    if (elsewhere) {
        error = self->set_context(variant->context);
    }
    if (error == 0) {
        error = write_table(self, variant, table, stream);
    }
    if (error == 0) {
        error = self->launch(variant->function, programs, 1, 1, variant->threads, 1, 1,
                             variant->shared_bytes, stream, parameters, NULL);
    }
    if (elsewhere) {
        self->set_context(before);
    }
    return error;
}

/* Whether a kernel can be launched as so many programs. False with an exception. */
static bool is_grid(GpuKernel *self, int64_t programs)
{
    if (programs < 0 || programs > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%U would need %lld programs in one launch", self->name,
                     (long long)programs);
        return false;
    }
    return true;
}

static Py_ssize_t argument_count(const GpuKernel *self)
{
    return self->tensor_count + PyUnicode_GET_LENGTH(self->kinds);
}

bool gpu_kernel_takes(PyObject *object, Py_ssize_t tensors, Py_ssize_t numbers)
{
    GpuKernel *kernel = (GpuKernel *)object;
    return Py_IS_TYPE(object, &GpuKernel_Type) && kernel->tensor_count == tensors &&
           PyUnicode_GET_LENGTH(kernel->kinds) == numbers;
}

/* Fill in the parameters, one slot each, and the GPU, where arguments are parameters. How many, or
   -1 with an exception. */
static Py_ssize_t fill_parameters(GpuKernel *self, const TensorHandle *tensors,
                                  const int64_t *numbers, uint64_t *slots, uint64_t *all,
                                  int32_t *device)
{
    if (fill_pointers(self, tensors, slots, all, device) < 0) {
        return -1;
    }
    Py_ssize_t count = argument_count(self);
    memcpy(slots + self->tensor_count, numbers,
           (size_t)(count - self->tensor_count) * sizeof *numbers);
    return count;
}

/* The same where they stand in a table: `values` has room for all of them. The parameters are its
   address, and how many launches it is of. */
static Py_ssize_t fill_table(GpuKernel *self, const TensorHandle *tensors, Table *table,
                             uint64_t *slots, uint64_t *all, int32_t *device)
{
    Py_ssize_t launches = PyBytes_GET_SIZE(self->first_values) / (Py_ssize_t)sizeof *table->values;
    uint64_t any = 0;
    memcpy(table->values, PyBytes_AS_STRING(self->first_values),
           (size_t)PyBytes_GET_SIZE(self->first_values));
    if (fill_pointers(self, tensors, table->values + launches, &any, device) < 0) {
        return -1;
    }
    table->count = launches + self->tensor_count - 1;
    table->address = *all = slots[0] = table->values[table->count];
    slots[1] = (uint64_t)launches;
    return 2;
}

/* Launch, with `table` for the arguments of a kernel that has one. As gpu_kernel_launch. */
static int launch_with(GpuKernel *self, const TensorHandle *tensors, const int64_t *numbers,
                       int64_t programs, Table *table)
{
    uint64_t slots[MAXIMUM_ARGUMENTS + 1], all = 0;
    void *parameters[MAXIMUM_ARGUMENTS + MAXIMUM_HIDDEN];
    int32_t device = NO_DEVICE;
    void *stream = NULL;
    Py_ssize_t count = has_table(self)
                           ? fill_table(self, tensors, table, slots, &all, &device)
                           : fill_parameters(self, tensors, numbers, slots, &all, &device);
    if (count < 0) {
        return -1;
    }
    const Variant *found = find_variant(self, device, all % ALIGNMENT == 0);
    if (found == NULL) {
        return -1;
    }
    const Variant variant = *found; /* other threads may add some, and move them, from here on */
    if (variant.function == NULL) {
        return GPU_KERNEL_HAS_NO_CODE;
    }
    if (find_stream(self, device, &stream) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        parameters[i] = &slots[i];
    }
    slots[count] = 0;
    for (Py_ssize_t i = 0; i < variant.hidden; i++) {
        parameters[count + i] = &slots[count];
    }
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = launch_variant(self, &variant, table, (unsigned)programs, stream, parameters);
    Py_END_ALLOW_THREADS
    if (error != 0) {
        PyErr_Format(PyExc_RuntimeError, "CUDA error %d at the launch of %U", error, self->name);
        return -1;
    }
    return GPU_KERNEL_LAUNCHED;
}

int gpu_kernel_launch(PyObject *kernel, const TensorHandle *tensors, const int64_t *numbers,
                      int64_t programs)
{
    GpuKernel *self = (GpuKernel *)kernel;
    Table table = {NULL, 0, 0};
    if (!is_grid(self, programs)) {
        return -1;
    }
    if (programs == 0) {
        return GPU_KERNEL_LAUNCHED;
    }
    if (has_table(self)) {
        Py_ssize_t first = PyBytes_GET_SIZE(self->first_values) / (Py_ssize_t)sizeof(uint64_t);
        size_t room = (size_t)(first + self->tensor_count + MAXIMUM_WRITTEN);
        table.values = PyMem_Calloc(room, sizeof *table.values);
        if (table.values == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    int result = launch_with(self, tensors, numbers, programs, &table);
    PyMem_Free(table.values);
    return result;
}

/* The number in a slot as an object: `kind` is its letter. */
static PyObject *number_in(int64_t slot, char kind)
{
    if (kind != 'd') {
        return PyLong_FromLongLong(slot);
    }
    double real;
    memcpy(&real, &slot, sizeof real);
    return PyFloat_FromDouble(real);
}

int gpu_kernel_run_eagerly(PyObject *kernel, PyObject *const *tensors, const int64_t *numbers,
                           int64_t programs)
{
    GpuKernel *self = (GpuKernel *)kernel;
    const char *kinds = PyUnicode_AsUTF8(self->kinds);
    Py_ssize_t count = argument_count(self), made = self->tensor_count;
    PyObject *arguments[MAXIMUM_TENSORS + MAXIMUM_ARGUMENTS + 1], *result = NULL;
    memcpy(arguments, tensors, (size_t)self->tensor_count * sizeof *tensors);
    for (; kinds != NULL && made <= count; made++) {
        Py_ssize_t place = made - self->tensor_count;
        arguments[made] = made == count ? PyLong_FromLongLong(programs)
                                        : number_in(numbers[place], kinds[place]);
        if (arguments[made] == NULL) {
            break;
        }
    }
    if (made > count) {
        result = PyObject_Vectorcall(self->eager, arguments, (size_t)made, NULL);
    }
    while (made > self->tensor_count) {
        Py_DECREF(arguments[--made]);
    }
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *call_kernel(PyObject *object, PyObject *const *args, size_t flagged_count,
                             PyObject *names)
{
    GpuKernel *self = (GpuKernel *)object;
    Py_ssize_t given = PyVectorcall_NARGS(flagged_count), count = argument_count(self);
    TensorHandle handles[MAXIMUM_TENSORS];
    int64_t numbers[MAXIMUM_ARGUMENTS];
    if (given != count + 1 || (names != NULL && PyTuple_GET_SIZE(names) > 0)) {
        return PyErr_Format(PyExc_TypeError,
                            "%U takes %zd positional arguments (%zd tensors, %zd sizes, programs); "
                            "%zd given",
                            self->name, count + 1, self->tensor_count,
                            PyUnicode_GET_LENGTH(self->kinds), given);
    }
    long long programs = PyLong_AsLongLong(args[count]);
    if ((programs == -1 && PyErr_Occurred()) || !is_grid(self, programs)) {
        return NULL;
    }
    if (programs == 0) {
        Py_RETURN_NONE;
    }
    if (find_handles(self, args, handles) < 0 ||
        fill_numbers(self, args + self->tensor_count, numbers) < 0) {
        return NULL;
    }
    switch (gpu_kernel_launch(object, handles, numbers, programs)) {
    case GPU_KERNEL_LAUNCHED:
        Py_RETURN_NONE;
    case GPU_KERNEL_HAS_NO_CODE:
        return PyObject_Vectorcall(self->eager, args, (size_t)given, NULL);
    default:
        return NULL;
    }
}

/* The bytes that say how each tensor is given, new; by default all as pointers. NULL with an
   exception. */
static PyObject *checked_widths(PyObject *widths, Py_ssize_t tensor_count)
{
    if (widths == NULL || PyBytes_GET_SIZE(widths) == 0) {
        widths = PyBytes_FromStringAndSize(NULL, tensor_count);
        if (widths != NULL) {
            memset(PyBytes_AS_STRING(widths), 0, (size_t)tensor_count);
        }
        return widths;
    }
    const char *width = PyBytes_AS_STRING(widths);
    bool fits = PyBytes_GET_SIZE(widths) == tensor_count;
    for (Py_ssize_t i = 0; fits && i < tensor_count; i++) {
        fits = width[i] == 0 || width[i] == 4 || width[i] == 8;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "widths of GpuKernel: 0, 4 or 8 for each tensor");
        return NULL;
    }
    return Py_NewRef(widths);
}

/* Whether a kernel may have so many arguments; `in_table`: the bytes that its table begins with, or
   0. False with an exception. */
static bool are_counts(Py_ssize_t tensors, Py_ssize_t numbers, Py_ssize_t in_table)
{
    Py_ssize_t most = in_table > 0 ? MAXIMUM_TENSORS : MAXIMUM_ARGUMENTS;
    Py_ssize_t count = tensors + (in_table > 0 ? in_table / (Py_ssize_t)sizeof(uint64_t) : numbers);
    if (tensors < 1 || count > most) {
        PyErr_Format(PyExc_ValueError, "GpuKernel takes 1 to %zd arguments, the first a tensor",
                     most);
        return false;
    }
    if (in_table > 0 && (in_table % sizeof(uint64_t) != 0 || numbers > 0 || tensors < 2)) {
        PyErr_SetString(PyExc_ValueError, "a GpuKernel with a table takes tensors, the table last");
        return false;
    }
    return true;
}

static PyObject *GpuKernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"name", "tensor_count", "kinds", "driver", "get_stream", "prepare",
                            "eager", "widths", "first_values", NULL};
    PyObject *name, *kinds, *get_stream, *prepare, *eager, *widths = NULL, *first_values = NULL;
    Py_ssize_t tensor_count;
    unsigned long long launch, get_context, set_context;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UnU(KKK)OOO|SS:GpuKernel", names, &name,
                                     &tensor_count, &kinds, &launch, &get_context, &set_context,
                                     &get_stream, &prepare, &eager, &widths, &first_values)) {
        return NULL;
    }
    Py_ssize_t in_table = first_values == NULL ? 0 : PyBytes_GET_SIZE(first_values);
    if (!are_counts(tensor_count, PyUnicode_GET_LENGTH(kinds), in_table)) {
        return NULL;
    }
    widths = checked_widths(widths, tensor_count);
    first_values = first_values == NULL ? PyBytes_FromStringAndSize(NULL, 0)
                                        : Py_NewRef(first_values);
    if (widths == NULL || first_values == NULL) {
        Py_XDECREF(widths);
        Py_XDECREF(first_values);
        return NULL;
    }
    GpuKernel *self = (GpuKernel *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(widths);
        Py_DECREF(first_values);
        return NULL;
    }
    self->widths = widths;
    self->first_values = first_values;
    self->vectorcall = call_kernel;
    self->launch = (LaunchFunction)(uintptr_t)launch;
    self->get_context = (GetContextFunction)(uintptr_t)get_context;
    self->set_context = (SetContextFunction)(uintptr_t)set_context;
    self->get_stream = Py_NewRef(get_stream);
    self->prepare = Py_NewRef(prepare);
    self->eager = Py_NewRef(eager);
    self->name = Py_NewRef(name);
    self->kinds = Py_NewRef(kinds);
    self->tensor_count = tensor_count;
    return (PyObject *)self;
}

static int GpuKernel_traverse(PyObject *object, visitproc visit, void *arg)
{
    GpuKernel *self = (GpuKernel *)object;
    Py_VISIT(self->get_stream);
    Py_VISIT(self->prepare);
    Py_VISIT(self->eager);
    return 0;
}

static int GpuKernel_clear(PyObject *object)
{
    GpuKernel *self = (GpuKernel *)object;
    Py_CLEAR(self->get_stream);
    Py_CLEAR(self->prepare);
    Py_CLEAR(self->eager);
    return 0;
}

static void GpuKernel_dealloc(PyObject *object)
{
    GpuKernel *self = (GpuKernel *)object;
    PyObject_GC_UnTrack(object);
    GpuKernel_clear(object);
    Py_XDECREF(self->name);
    Py_XDECREF(self->kinds);
    Py_XDECREF(self->widths);
    Py_XDECREF(self->first_values);
    PyMem_Free(self->variants);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef GpuKernel_members[] = {
    {"name", T_OBJECT, offsetof(GpuKernel, name), READONLY, "the kernel's name"},
    {"tensor_count", T_PYSSIZET, offsetof(GpuKernel, tensor_count), READONLY,
     "how many tensors a call takes"},
    {NULL},
};

PyDoc_STRVAR(
    GpuKernel_doc,
    "GpuKernel(name, tensor_count, kinds, driver, get_stream, prepare, eager, widths=b'',\n"
    "    first_values=b'')\n--\n\n"
    "A kernel on GPUs as a callable.\n\n"
    "`kernel(tensor, ..., number, ..., programs)` runs it as so many programs on the current\n"
    "stream of the tensors' GPU, with the tensors' data pointers (storage offsets\n"
    "included) and the numbers. `kinds`: a letter for each number: i or l for an integer of 32\n"
    "or 64 bits, d for a double. `driver`: the addresses of cuLaunchKernel, cuCtxGetCurrent and\n"
    "cuCtxSetCurrent. `get_stream(device)`: the handle of a GPU's current stream.\n"
    "`prepare(device, aligned)`: machine code for a GPU, for pointers that are all multiples of\n"
    "16 bytes or not: (context, function, threads of a program, bytes of shared memory, hidden\n"
    "pointers behind the parameters, which are null), or None where there is none; asked once for\n"
    "each. `eager`: called with the same arguments where there is no machine code.\n"
    "`widths`: a byte for each tensor: 0 where the kernel is given its pointer; 4 or 8 where the\n"
    "tensor is a number of the CPU of so many bytes, whose value the kernel is given.\n"
    "`first_values`: integers of 8 bytes, one for each of the launches that the kernel does the\n"
    "work of. Its parameters then are the last tensor, which has room for a table of them and of\n"
    "all other arguments, and how many launches there are; `prepare` gives two more numbers: a\n"
    "function that writes such a table, given its address, a number of values and the values, by\n"
    "128 threads a program, and how many values it takes.\n"
    "Returns None. TypeError: wrong count or kind of argument; ValueError: too many programs;\n"
    "RuntimeError: a tensor has no memory or is on another GPU, or the driver refused.");

PyTypeObject GpuKernel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fusewright.native.GpuKernel",
    .tp_basicsize = sizeof(GpuKernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_doc = GpuKernel_doc,
    .tp_new = GpuKernel_new,
    .tp_dealloc = GpuKernel_dealloc,
    .tp_traverse = GpuKernel_traverse,
    .tp_clear = GpuKernel_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(GpuKernel, vectorcall),
    .tp_members = GpuKernel_members,
};
