/* What each operation of a CallPlan does. Operands have been checked when the plan was made: slots,
   constants and numbers exist, but a slot may be empty or hold what is no tensor. */
#include "call_plan.h"

#include <string.h>

#include "cpu_kernel.h"
#include "gpu_kernel.h"
#include "plan_numbers.h"
#include "plan_results.h"
#include "plan_slots.h"

static PyObject *constant_at(const PlanFrame *frame, int64_t place)
{
    return frame->plan->constants[~place].object;
}

/* The numbers at `places`, one behind the other. */
static int64_t *gather_numbers(const PlanFrame *frame, const int64_t *places, int64_t count,
                               int64_t *found)
{
    for (int64_t i = 0; i < count; i++) {
        found[i] = frame->numbers[places[i]];
    }
    return found;
}

/* The objects at `places`, borrowed, one behind the other. -1 with an exception. */
static int gather_objects(const PlanFrame *frame, const int64_t *places, int64_t count,
                          PyObject **found)
{
    for (int64_t i = 0; i < count; i++) {
        found[i] = plan_slot_object(slot_at(frame, places[i]));
        if (found[i] == NULL) {
            return -1;
        }
    }
    return 0;
}

/* Memory ----------------------------------------------------------------------------------- */

/* How tensors of a constant `(dtype number, device type, device index, dtype, make)` are made;
   `make(sizes, strides)` does it, too. */
static int read_kind(PyObject *kind, int32_t *dtype, int32_t *device, int32_t *index)
{
    if (!PyTuple_Check(kind) || PyTuple_GET_SIZE(kind) != 5) {
        PyErr_SetString(PyExc_TypeError, "a plan's kind of tensors is not a tuple of five");
        return -1;
    }
    *dtype = (int32_t)PyLong_AsLong(PyTuple_GET_ITEM(kind, 0));
    *device = (int32_t)PyLong_AsLong(PyTuple_GET_ITEM(kind, 1));
    *index = (int32_t)PyLong_AsLong(PyTuple_GET_ITEM(kind, 2));
    return PyErr_Occurred() ? -1 : 0;
}

/* make(sizes, strides), which raises what a user of torch expects where there is no memory. */
static PyObject *make_in_python(PyObject *make, const int64_t *sizes, int64_t count)
{
    PyObject *size = tensor_access_extents(sizes, count),
             *stride = tensor_access_extents(sizes + count, count);
    PyObject *tensor = NULL;
    if (size != NULL && stride != NULL) {
        tensor = PyObject_CallFunctionObjArgs(make, size, stride, NULL);
    }
    Py_XDECREF(size);
    Py_XDECREF(stride);
    return tensor;
}

/* Whether a tensor has a dtype, sizes and strides. */
static bool is_laid_out(TensorHandle handle, int32_t dtype, int64_t dimensions,
                        const int64_t *sizes, const int64_t *strides)
{
    int64_t dim, *own_sizes, *own_strides;
    int32_t own_dtype;
    size_t bytes = (size_t)dimensions * sizeof *sizes;
    return handle != NULL && torch_library.get_dim(handle, &dim) == 0 && dim == dimensions &&
           torch_library.get_dtype(handle, &own_dtype) == 0 && own_dtype == dtype &&
           torch_library.get_sizes(handle, &own_sizes) == 0 &&
           torch_library.get_strides(handle, &own_strides) == 0 &&
           memcmp(own_sizes, sizes, bytes) == 0 && memcmp(own_strides, strides, bytes) == 0;
}

/* slot, kind, dimensions, sizes, strides; a result may lie in memory that the caller gave */
static int allocate(PlanFrame *frame, const int64_t *operands)
{
    int32_t dtype, device, index;
    if (read_kind(constant_at(frame, operands[1]), &dtype, &device, &index) < 0) {
        return -1;
    }
    int64_t count = operands[2];
    int64_t *sizes = gather_numbers(frame, operands + 3, 2 * count, (int64_t *)frame->scratch);
    PlanSlot *slot = &frame->slots[operands[0]];
    PyObject *given = plan_results_memory(frame->results, operands);
    if (given != NULL && tensor_access_is_tensor(given) &&
        is_laid_out(tensor_access_handle(given), dtype, count, sizes, sizes + count)) {
        return plan_slot_set(slot, Py_NewRef(given));
    }
    TensorHandle handle;
    int32_t refusal;
    if (device == torch_library.cpu_device_type) {
        refusal =
            torch_library.empty_strided(count, sizes, sizes + count, dtype, device, index, &handle);
    } else { /* it may wait for the device, whose work other threads may have to go on with */
        Py_BEGIN_ALLOW_THREADS
        refusal =
            torch_library.empty_strided(count, sizes, sizes + count, dtype, device, index, &handle);
        Py_END_ALLOW_THREADS
    }
    if (refusal != 0) {
        PyObject *make = PyTuple_GET_ITEM(constant_at(frame, operands[1]), 4);
        return plan_slot_set(slot, make_in_python(make, sizes, count));
    }
    plan_slot_clear(slot);
    slot->handle = handle;
    return given == NULL ? 0
                         : plan_results_note(frame->results, operands, plan_slot_object(slot));
}

/* slot, source: another name for what the source holds, which is empty then */
static int move(PlanFrame *frame, const int64_t *operands)
{
    PlanSlot *slot = &frame->slots[operands[0]], *source = slot_at(frame, operands[1]);
    plan_slot_clear(slot);
    *slot = *source;
    *source = (PlanSlot){0};
    return 0;
}

/* slot, source, dimensions, sizes, strides, offset from the source's own first element */
static int reinterpret(PlanFrame *frame, const int64_t *operands)
{
    int64_t count = operands[2];
    int64_t *sizes = gather_numbers(frame, operands + 3, 2 * count, (int64_t *)frame->scratch);
    int64_t offset = frame->numbers[operands[3 + 2 * count]];
    TensorHandle source = slot_at(frame, operands[1])->handle, handle;
    if (source == NULL ||
        torch_library.reinterpret(source, count, sizes, sizes + count, offset, &handle) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "a compiled graph cannot look at memory through "
                                            "another layout");
        return -1;
    }
    PlanSlot *slot = &frame->slots[operands[0]];
    plan_slot_clear(slot);
    slot->handle = handle;
    return 0;
}

static int refuse_arena(void)
{
    PyErr_SetString(PyExc_RuntimeError, "a compiled graph cannot place a buffer in its arena");
    return -1;
}

/* slot, arena, kind, offset in bytes, dimensions, sizes, strides */
static int place(PlanFrame *frame, const int64_t *operands)
{
    int32_t dtype, device, index;
    if (read_kind(constant_at(frame, operands[2]), &dtype, &device, &index) < 0) {
        return -1;
    }
    int64_t count = operands[4];
    int64_t *sizes = gather_numbers(frame, operands + 5, 2 * count, (int64_t *)frame->scratch);
    TensorHandle arena = slot_at(frame, operands[1])->handle, handle;
    if (arena == NULL || torch_library.place_in(arena, operands[3], dtype, count, sizes,
                                                sizes + count, &handle) != 0) {
        return refuse_arena();
    }
    PlanSlot *slot = &frame->slots[operands[0]];
    plan_slot_clear(slot);
    slot->handle = handle;
    return 0;
}

/* slot, arena, offset in bytes: for kernels alone */
static int point(PlanFrame *frame, const int64_t *operands)
{
    TensorHandle arena = slot_at(frame, operands[1])->handle;
    void *memory;
    if (arena == NULL || torch_library.get_data_pointer(arena, &memory) != 0) {
        return refuse_arena();
    }
    PlanSlot *slot = &frame->slots[operands[0]];
    plan_slot_clear(slot);
    slot->memory = (char *)memory + operands[2];
    return 0;
}

/* slot */
static int release(PlanFrame *frame, const int64_t *operands)
{
    plan_slot_clear(&frame->slots[operands[0]]);
    return 0;
}

/* Calls ------------------------------------------------------------------------------------ */

static int refuse_kernel(PyObject *kernel, int64_t tensors, int64_t numbers)
{
    PyErr_Format(PyExc_TypeError, "%R does not take %lld tensors and %lld sizes", kernel,
                 (long long)tensors, (long long)numbers);
    return -1;
}

/* kernel, how many tensors, tensors, how many numbers, numbers, units, grain */
static int launch(PlanFrame *frame, const int64_t *operands)
{
    PyObject *kernel = constant_at(frame, operands[0]);
    int64_t tensors = operands[1];
    const int64_t *places = operands + 2;
    int64_t numbers = places[tensors];
    if (!cpu_kernel_takes(kernel, tensors, numbers)) {
        return refuse_kernel(kernel, tensors, numbers);
    }
    for (int64_t i = 0; i < tensors; i++) {
        const PlanSlot *slot = slot_at(frame, places[i]);
        frame->scratch[i] = slot->memory;
        if (slot->memory == NULL &&
            (slot->handle == NULL ||
             torch_library.get_data_pointer(slot->handle, &frame->scratch[i]) != 0)) {
            return cpu_kernel_refuse(kernel, i);
        }
    }
    places += tensors + 1;
    gather_numbers(frame, places, numbers, (int64_t *)(frame->scratch + tensors));
    places += numbers;
    return cpu_kernel_launch(kernel, frame->scratch, frame->numbers[places[0]], places[1]);
}

/* kernel, how many tensors, tensors, how many numbers, numbers, programs */
static int launch_on_gpu(PlanFrame *frame, const int64_t *operands)
{
    PyObject *kernel = constant_at(frame, operands[0]);
    int64_t tensors = operands[1];
    const int64_t *places = operands + 2;
    const int64_t *sizes = places + tensors + 1;
    int64_t numbers = places[tensors];
    if (!gpu_kernel_takes(kernel, tensors, numbers)) {
        return refuse_kernel(kernel, tensors, numbers);
    }
    for (int64_t i = 0; i < tensors; i++) {
        frame->scratch[i] = slot_at(frame, places[i])->handle;
    }
    int64_t *given = gather_numbers(frame, sizes, numbers, (int64_t *)(frame->scratch + tensors));
    int64_t programs = frame->numbers[sizes[numbers]];
    int result = gpu_kernel_launch(kernel, frame->scratch, given, programs);
    if (result != GPU_KERNEL_HAS_NO_CODE) {
        return result;
    }
    PyObject **objects = (PyObject **)frame->scratch;
    if (gather_objects(frame, places, tensors, objects) < 0) {
        return -1;
    }
    return gpu_kernel_run_eagerly(kernel, objects, given, programs);
}

/* Call a constant with `operands`: how many arguments, arguments, names of the last of them or
   NOTHING. */
static PyObject *call_function(PlanFrame *frame, int64_t function, const int64_t *operands)
{
    int64_t count = operands[0], place = operands[1 + count];
    PyObject **arguments = (PyObject **)frame->scratch + 1; /* the callee may use what is ahead */
    if (gather_objects(frame, operands + 1, count, arguments) < 0) {
        return NULL;
    }
    PyObject *names = place == NOTHING ? NULL : constant_at(frame, place);
    size_t positional = (size_t)(count - (names == NULL ? 0 : PyTuple_GET_SIZE(names)));
    return PyObject_Vectorcall(constant_at(frame, function), arguments,
                               positional | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

/* result or NOTHING, function, how many arguments, arguments, names of the last of them or NOTHING
 */
static int call(PlanFrame *frame, const int64_t *operands)
{
    PyObject *result = call_function(frame, operands[1], operands + 2);
    if (operands[0] != NOTHING) {
        return plan_slot_set(&frame->slots[operands[0]], result);
    }
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* result, predicate, a block where it holds, another where it does not, how many arguments,
   arguments */
static int branch(PlanFrame *frame, const int64_t *operands)
{
    PyObject *predicate = plan_slot_object(slot_at(frame, operands[1]));
    int holds = predicate == NULL ? -1 : PyObject_IsTrue(predicate);
    if (holds < 0) {
        return -1;
    }
    int64_t count = operands[4];
    PyObject **arguments = (PyObject **)frame->scratch + 1; /* the callee may use what is ahead */
    if (gather_objects(frame, operands + 5, count, arguments) < 0) {
        return -1;
    }
    PyObject *block = constant_at(frame, operands[holds ? 2 : 3]);
    size_t flags = (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET;
    PyObject *result = PyObject_Vectorcall(block, arguments, flags, NULL);
    return plan_slot_set(&frame->slots[operands[0]], result);
}

/* A number for the powers of two between which each of some numbers lies. */
static int64_t size_class(const PlanFrame *frame, const int64_t *places, int64_t count)
{
    uint64_t number = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t rest = (uint64_t)frame->numbers[places[i]];
        number *= 67;
        for (; rest != 0; rest >>= 1) {
            number++;
        }
    }
    return (int64_t)(number & INT64_MAX);
}

/* choice, the class of sizes for which it was decided last, the section of that, how many sizes,
   sizes, how many sections, for each how many operations stand ahead of it: goes on with the section
   that choice.section(class) gives, which is 0 where it is to be decided. What is decided is noted
   in the operands. Below 0: undecided, and not to be decided now. */
static int choose(PlanFrame *frame, const int64_t *operands)
{
    int64_t *decided = (int64_t *)operands + 1;
    int64_t count = operands[3], section = decided[1];
    const int64_t *sections = operands + 4 + count;
    int64_t kind = count == 0 ? 0 : size_class(frame, operands + 4, count);
    if (kind != decided[0]) {
        PyObject *number =
            PyObject_CallMethod(constant_at(frame, operands[0]), "section", "L", (long long)kind);
        section = number == NULL ? -1 : PyLong_AsLongLong(number);
        Py_XDECREF(number);
        if (section == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (section > 0 && section < sections[0]) {
            decided[0] = kind;
            decided[1] = section;
        }
        section = section < 0 ? -section : section;
    }
    if (section >= sections[0]) {
        PyErr_SetString(PyExc_ValueError, "a choice has no such alternative");
        return -1;
    }
    return (int)Py_MAX(sections[1 + section], 0);
}

/* how many operations */
static int skip(PlanFrame *frame, const int64_t *operands)
{
    (void)frame;
    return (int)Py_MAX(operands[0], 0);
}

/* Whether a slot holds a tensor whose class changes no operator. */
static bool is_plain(const PlanSlot *slot)
{
    return slot->handle != NULL &&
           (slot->object == NULL || Py_IS_TYPE(slot->object, tensor_access.tensor_type) ||
            Py_IS_TYPE(slot->object, tensor_access.parameter_type));
}

/* A product into `out` by torch's C function. Other threads run meanwhile. */
static bool is_multiplied(TensorHandle out, const TensorHandle *given, int64_t count,
                          bool is_batched)
{
    int32_t refusal;
    Py_BEGIN_ALLOW_THREADS
    if (count == 3) {
        refusal = torch_library.addmm_out(out, given[0], given[1], given[2], 1, 1);
    } else if (is_batched) {
        refusal = torch_library.bmm_out(out, given[0], given[1]);
    } else {
        refusal = torch_library.mm_out(out, given[0], given[1]);
    }
    Py_END_ALLOW_THREADS
    return refusal == 0;
}

/* function, `count` tensors, result, names: by the C function, where this torch has it and all are
   plain; else, and where that refuses, by function(*tensors, out=result), which says why. */
static int product(PlanFrame *frame, const int64_t *operands, int64_t count, bool is_batched,
                   bool is_offered)
{
    const int64_t *places = operands + 1;
    TensorHandle handles[4];
    for (int64_t i = 0; i <= count; i++) {
        const PlanSlot *slot = slot_at(frame, places[i]);
        is_offered = is_offered && is_plain(slot);
        handles[i] = slot->handle;
    }
    if (is_offered && is_multiplied(handles[count], handles, count, is_batched)) {
        return 0;
    }
    PyObject **arguments = (PyObject **)frame->scratch + 1;
    if (gather_objects(frame, places, count + 1, arguments) < 0) {
        return -1;
    }
    PyObject *result = PyObject_Vectorcall(constant_at(frame, operands[0]), arguments,
                                           (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                           constant_at(frame, places[count + 1]));
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int mm(PlanFrame *frame, const int64_t *operands)
{
    return product(frame, operands, 2, false, torch_library.mm_out != NULL);
}

static int bmm(PlanFrame *frame, const int64_t *operands)
{
    return product(frame, operands, 2, true, torch_library.bmm_out != NULL);
}

/* A summand, and two factors. */
static int addmm(PlanFrame *frame, const int64_t *operands)
{
    return product(frame, operands, 3, false, torch_library.addmm_out != NULL);
}

/* Hold the items of a tuple or list at `places`, which are slots or NOTHING. */
static int hold_items(PlanFrame *frame, PyObject *object, const int64_t *places, int64_t expected)
{
    PyObject *items = object == NULL ? NULL
                                     : PySequence_Fast(object, "a library call returned "
                                                               "no tuple or list");
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    if (count != expected) {
        PyErr_Format(PyExc_ValueError, "a library call returned %zd results, not %lld", count,
                     (long long)expected);
        Py_DECREF(items);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (places[i] != NOTHING) {
            PyObject *item = PySequence_Fast_GET_ITEM(items, i);
            plan_slot_set(&frame->slots[places[i]], Py_NewRef(item));
        }
    }
    Py_DECREF(items);
    return 0;
}

/* slot, how many results, result or NOTHING each; the slot is empty then */
static int unpack(PlanFrame *frame, const int64_t *operands)
{
    PlanSlot held = frame->slots[operands[0]];
    frame->slots[operands[0]] = (PlanSlot){0};
    PyObject *object = plan_slot_object(&held);
    int refused = object == NULL ? -1 : hold_items(frame, object, operands + 2, operands[1]);
    plan_slot_clear(&held);
    return refused;
}

/* The version of torch whose conversions of the dispatcher's words these are. */
#define WORDS_OF_2_10 ((UINT64_C(2) << 56) | (UINT64_C(10) << 48))

/* Write the word of an argument. 0 where there is none for it; -1 with an exception. */
static int write_word(PlanSlot *slot, char kind, uint64_t *word)
{
    if (kind == 't') {
        return is_plain(slot) && torch_library.new_handle(slot->handle, (TensorHandle *)word) == 0;
    }
    PyObject *object = plan_slot_object(slot);
    double real = object != NULL && kind == 'd' ? PyFloat_AsDouble(object) : 0;
    memcpy(word, &real, sizeof real);                   /* that of None is 0 */
    if (object != NULL && kind != 'd' && kind != 'n') { /* a bool is an int */
        *word = (uint64_t)PyLong_AsLongLong(object);
    }
    return PyErr_Occurred() ? -1 : 1;
}

/* Write the words of arguments. Where one cannot be written, there are none, and it says why. */
static int write_words(const PlanFrame *frame, const char *kinds, const int64_t *places,
                       uint64_t *words)
{
    int written = 1;
    int64_t count = 0;
    for (; written == 1 && kinds[count] != 0; count++) {
        written =
            write_word(slot_at(frame, places[count]), Py_TOLOWER(kinds[count]), &words[count]);
    }
    for (int64_t i = 0; written != 1 && i < count - 1; i++) {
        if (Py_TOLOWER(kinds[i]) == 't') {
            torch_library.delete_tensor((TensorHandle)words[i]);
        }
    }
    for (int64_t i = 0; written == 1 && i < count; i++) {
        if (Py_ISUPPER(kinds[i])) { /* the dispatcher deletes it */
            uint64_t *object = torch_library.new_object(sizeof *object);
            *object = words[i];
            words[i] = (uint64_t)(uintptr_t)object;
        }
    }
    return written;
}

/* Hold tensors, owned, at `places`, which are slots or NOTHING. */
static void hold_tensors(PlanFrame *frame, const uint64_t *words, const int64_t *places,
                         int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        PlanSlot gone = {.handle = (TensorHandle)words[i]};
        if (places[i] != NOTHING) {
            PlanSlot held = frame->slots[places[i]];
            frame->slots[places[i]] = gone;
            gone = held;
        }
        plan_slot_clear(&gone);
    }
}

/* Call an operator by the dispatcher: `texts` are its name, its overload, and a letter for each of
   `count` arguments. 0 where that cannot be, or it refuses; -1 with an exception. */
static int enter_dispatcher(PlanFrame *frame, const char *const *texts, const int64_t *places,
                            int64_t count, uint64_t *words)
{
    if (torch_library.call_dispatcher == NULL || torch_library.new_object == NULL ||
        (int64_t)strlen(texts[2]) != count) {
        return 0;
    }
    int written = write_words(frame, texts[2], places, words);
    if (written != 1) {
        return written;
    }
    int32_t refusal;
    Py_BEGIN_ALLOW_THREADS
    refusal = torch_library.call_dispatcher(texts[0], texts[1], words, WORDS_OF_2_10);
    Py_END_ALLOW_THREADS
    return refusal == 0;
}

/* function, name, overload, a letter for each argument (wrapper/dispatched.py), how many arguments,
   arguments, names of the last of them or NOTHING, how many results, result or NOTHING each: by the
   dispatcher, where that can be; else, and where that refuses, by the function, which says why. */
static int dispatch(PlanFrame *frame, const int64_t *operands)
{
    const char *texts[3];
    for (int i = 0; i < 3; i++) {
        if ((texts[i] = PyUnicode_AsUTF8(constant_at(frame, operands[1 + i]))) == NULL) {
            return -1;
        }
    }
    int64_t count = operands[4], result_count = operands[6 + count];
    const int64_t *results = operands + 7 + count;
    uint64_t *words = (uint64_t *)frame->scratch;
    int entered = enter_dispatcher(frame, texts, operands + 5, count, words);
    if (entered == 1) {
        hold_tensors(frame, words, results, result_count);
    }
    if (entered != 0) {
        return entered == 1 ? 0 : -1;
    }
    PyObject *object = call_function(frame, operands[0], operands + 4);
    if (object != NULL && tensor_access_is_tensor(object) && result_count == 1) {
        PyObject *alone = PyTuple_Pack(1, object);
        Py_SETREF(object, alone);
    }
    int held = object == NULL ? -1 : hold_items(frame, object, results, result_count);
    Py_XDECREF(object);
    return held;
}

/* New references to the objects at `places`, in a new tuple or list; NULL with an exception. */
static PyObject *collect(const PlanFrame *frame, const int64_t *places, int64_t count,
                         PyObject *collection, bool is_list)
{
    for (int64_t i = 0; collection != NULL && i < count; i++) {
        PyObject *object = plan_slot_object(slot_at(frame, places[i]));
        if (object == NULL) {
            Py_CLEAR(collection);
        } else if (is_list) {
            PyList_SET_ITEM(collection, i, Py_NewRef(object));
        } else {
            PyTuple_SET_ITEM(collection, i, Py_NewRef(object));
        }
    }
    return collection;
}

/* slot, how many, items */
static int make_list(PlanFrame *frame, const int64_t *operands)
{
    PyObject *list = collect(frame, operands + 2, operands[1], PyList_New(operands[1]), true);
    return plan_slot_set(&frame->slots[operands[0]], list);
}

/* slot, how many, items */
static int make_tuple(PlanFrame *frame, const int64_t *operands)
{
    PyObject *tuple = collect(frame, operands + 2, operands[1], PyTuple_New(operands[1]), false);
    return plan_slot_set(&frame->slots[operands[0]], tuple);
}

/* target, source */
static int copy_into(PlanFrame *frame, const int64_t *operands)
{
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("copy_")) == NULL) {
        return -1;
    }
    PyObject **arguments = (PyObject **)frame->scratch + 1;
    if (gather_objects(frame, operands, 2, arguments) < 0) {
        return -1;
    }
    PyObject *result =
        PyObject_VectorcallMethod(name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* slot, function(tensor, sizes, strides, dtype, whose) for a tensor laid out otherwise, whose, kind,
   dimensions, sizes, strides */
static int ensure_layout(PlanFrame *frame, const int64_t *operands)
{
    PlanSlot *slot = &frame->slots[operands[0]];
    PyObject *kind = constant_at(frame, operands[3]);
    int32_t dtype, device, index;
    if (read_kind(kind, &dtype, &device, &index) < 0) {
        return -1;
    }
    int64_t count = operands[4];
    int64_t *sizes = gather_numbers(frame, operands + 5, 2 * count, (int64_t *)frame->scratch);
    if (is_laid_out(slot->handle, dtype, count, sizes, sizes + count)) {
        return 0;
    }
    PyObject *tensor = plan_slot_object(slot);
    PyObject *size = tensor_access_extents(sizes, count),
             *stride = tensor_access_extents(sizes + count, count);
    PyObject *result = NULL;
    if (tensor != NULL && size != NULL && stride != NULL) {
        result = PyObject_CallFunctionObjArgs(constant_at(frame, operands[1]), tensor, size, stride,
                                              PyTuple_GET_ITEM(kind, 3),
                                              constant_at(frame, operands[2]), NULL);
    }
    Py_XDECREF(size);
    Py_XDECREF(stride);
    return plan_slot_set(slot, result);
}

/* how many, outputs */
static int give_back(PlanFrame *frame, const int64_t *operands)
{
    Py_XDECREF(frame->result);
    frame->result = collect(frame, operands + 1, operands[0], PyTuple_New(operands[0]), false);
    return frame->result == NULL ? -1 : 0;
}

const PlanOperation plan_operations[] = {
    {"add", "nrr", plan_add, false},
    {"multiply", "nrr", plan_multiply, false},
    {"//", "nrr", plan_floor_divide, false},
    {"%", "nrr", plan_remainder, false},
    {"min", "nrr", plan_minimum, false},
    {"max", "nrr", plan_maximum, false},
    {"read number", "ns", plan_read_number, false},
    {"read size", "nsi", plan_read_size, false},
    {"read stride", "nsi", plan_read_stride, false},
    {"make integer", "or", plan_make_integer, false},
    {"allocate", "ok#*r*r", allocate, false},
    {"move", "oo", move, false},
    {"reinterpret", "os#*r*rr", reinterpret, false},
    {"place", "oski#*r*r", place, false},
    {"point", "osi", point, false},
    {"release", "o", release, false},
    {"launch", "k#*s#*rri", launch, true},
    {"launch on GPU", "k#*s#*rr", launch_on_gpu, true},
    {"call", "dk#*sq", call, true},
    {"dispatch", "kkkk#*sq#*d", dispatch, true},
    {"branch", "oskk#*s", branch, false},
    {"choose", "kii#*r#*i", choose, false},
    {"skip", "i", skip, false},
    {"mm", "ksssk", mm, true},
    {"bmm", "ksssk", bmm, true},
    {"addmm", "kssssk", addmm, true},
    {"unpack", "o#*d", unpack, false},
    {"list", "o#*s", make_list, false},
    {"tuple", "o#*s", make_tuple, false},
    {"copy", "ss", copy_into, false},
    {"ensure layout", "okkk#*r*r", ensure_layout, false},
    {"return", "#*s", give_back, false},
};

const Py_ssize_t plan_operation_count = Py_ARRAY_LENGTH(plan_operations);
