/* What the operations of a CallPlan do that compute sizes, or find them in what a call is given. */
#include "plan_numbers.h"

#include "cpu_kernel.h"
#include "plan_slots.h"

static int raise_overflow(void)
{
    PyErr_SetString(PyExc_OverflowError, "a size of a compiled graph does not fit in 64 bits");
    return -1;
}

int plan_add(PlanFrame *frame, const int64_t *operands)
{
    int64_t *numbers = frame->numbers;
    return __builtin_add_overflow(numbers[operands[1]], numbers[operands[2]],
                                  &numbers[operands[0]])
               ? raise_overflow()
               : 0;
}

int plan_multiply(PlanFrame *frame, const int64_t *operands)
{
    int64_t *numbers = frame->numbers;
    return __builtin_mul_overflow(numbers[operands[1]], numbers[operands[2]],
                                  &numbers[operands[0]])
               ? raise_overflow()
               : 0;
}

/* As in Python: towards negative infinity, and the remainder has the sign of the divisor. */
static int divide(PlanFrame *frame, const int64_t *operands, bool wants_remainder)
{
    int64_t left = frame->numbers[operands[1]], right = frame->numbers[operands[2]];
    if (right == 0) {
        PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
        return -1;
    }
    if (right == -1 && left == INT64_MIN) {
        return raise_overflow();
    }
    int64_t rest = left % right;
    bool corrects = rest != 0 && (rest < 0) != (right < 0);
    frame->numbers[operands[0]] =
        wants_remainder ? rest + (corrects ? right : 0) : left / right - corrects;
    return 0;
}

int plan_floor_divide(PlanFrame *frame, const int64_t *operands)
{
    return divide(frame, operands, false);
}

int plan_remainder(PlanFrame *frame, const int64_t *operands)
{
    return divide(frame, operands, true);
}

int plan_minimum(PlanFrame *frame, const int64_t *operands)
{
    int64_t *numbers = frame->numbers;
    numbers[operands[0]] = Py_MIN(numbers[operands[1]], numbers[operands[2]]);
    return 0;
}

int plan_maximum(PlanFrame *frame, const int64_t *operands)
{
    int64_t *numbers = frame->numbers;
    numbers[operands[0]] = Py_MAX(numbers[operands[1]], numbers[operands[2]]);
    return 0;
}

/* number, slot: of a Python int, or the 64 bits of a float. */
int plan_read_number(PlanFrame *frame, const int64_t *operands)
{
    PyObject *object = plan_slot_object(slot_at(frame, operands[1]));
    return object == NULL ? -1 : cpu_kernel_number(object, &frame->numbers[operands[0]]);
}

/* number, tensor, dimension */
static int read_extent(PlanFrame *frame, const int64_t *operands,
                       int32_t (*read)(TensorHandle, int64_t **))
{
    TensorHandle handle = slot_at(frame, operands[1])->handle;
    int64_t dimensions, *extents;
    if (handle == NULL || torch_library.get_dim(handle, &dimensions) != 0 || operands[2] < 0 ||
        operands[2] >= dimensions || read(handle, &extents) != 0) {
        PyErr_Format(PyExc_RuntimeError, "an input of a compiled graph has no dimension %lld",
                     (long long)operands[2]);
        return -1;
    }
    frame->numbers[operands[0]] = extents[operands[2]];
    return 0;
}

int plan_read_size(PlanFrame *frame, const int64_t *operands)
{
    return read_extent(frame, operands, torch_library.get_sizes);
}

int plan_read_stride(PlanFrame *frame, const int64_t *operands)
{
    return read_extent(frame, operands, torch_library.get_strides);
}

/* slot, number */
int plan_make_integer(PlanFrame *frame, const int64_t *operands)
{
    return plan_slot_set(&frame->slots[operands[0]],
                         PyLong_FromLongLong(frame->numbers[operands[1]]));
}
