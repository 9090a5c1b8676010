/* The test of symbolic numbers. Relations between the numbers of several objects are one small
   program over the numbers gathered from all, in postfix order: an integer that overflows fails it.
   A real number is one 64-bit word too, the bits of its double. */
#include "guard_sizes.h"

#include <math.h>
#include <string.h>

#define STACK_DEPTH 64

/* What is read of an object: a size by its dimension, a stride by -1 less its dimension, or the
   value of an integer or of a finite float. */
#define INTEGER_ITSELF (1 << 20)
#define REAL_ITSELF (INTEGER_ITSELF + 1)

typedef enum {
    PUSH_SLOT,
    PUSH_NUMBER,
    ADD,
    MULTIPLY,
    FLOOR_DIVIDE,
    REMAINDER,
    MINIMUM,
    MAXIMUM,
    TO_REAL, /* from here on of real numbers */
    REAL_FUNCTION, /* of one number; the operand says which of `functions` */
    REAL_ADD,
    REAL_SUBTRACT,
    REAL_MULTIPLY,
    REAL_DIVIDE,
    REAL_POWER,
    REAL_FLOOR_DIVIDE,
    REAL_REMAINDER,
    REAL_ARC_TANGENT, /* of a quotient */
    REAL_COPY_SIGN,
    REAL_C_REMAINDER, /* with the sign of the dividend */
    REAL_MINIMUM,
    REAL_MAXIMUM,
    REAL_LESS, /* these give the integer 1 or 0 */
    REAL_NOT_MORE,
    REAL_EQUAL,
    SAME_BITS,
    IS_ZERO, /* these pop a number and end a relation */
    IS_NOT_ZERO,
    IS_NOT_NEGATIVE,
    OPERATION_COUNT,
} Operation;

/* Two words: the slot and what is read into it; or an operation and its operand. */
typedef struct {
    int64_t first, second;
} Pair;

typedef struct {
    Py_ssize_t slots;      /* numbers that all tests gather */
    Py_ssize_t test_count; /* tests that gather them */
    Py_ssize_t read_count, code_count;
    Pair pairs[]; /* the reads, then the code */
} Expectation;

static const Expectation *expectation(const GuardTest *test)
{
    return (const void *)PyBytes_AS_STRING(test->expected);
}

/* The left operand is replaced by the result; floor division and remainder as in Python. False on
   overflow. */
static bool compute(Operation operation, int64_t *left, int64_t right)
{
    switch (operation) {
    case ADD:
        return !__builtin_add_overflow(*left, right, left);
    case MULTIPLY:
        return !__builtin_mul_overflow(*left, right, left);
    case FLOOR_DIVIDE:
    case REMAINDER: {
        if (right <= 0) {
            return false;
        }
        int64_t rest = *left % right;
        int64_t quotient = *left / right - (rest < 0);
        *left = operation == FLOOR_DIVIDE ? quotient : rest + (rest < 0 ? right : 0);
        return true;
    }
    case MINIMUM:
        *left = Py_MIN(*left, right);
        return true;
    default:
        *left = Py_MAX(*left, right);
        return true;
    }
}

static double real(int64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static int64_t bits_of(double number)
{
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static double (*const functions[])(double) = {
    sqrt, fabs, floor, trunc, rint,  exp,  expm1, log,  log1p, log2,
    log10, sin,  cos,   tan,   sinh,  cosh, tanh,  asin, acos,  atan,
};

#define FUNCTION_COUNT ((int64_t)(sizeof functions / sizeof *functions))

/* Of floats as in Python: the remainder has the sign of the divisor, and the quotient is what
   that leaves, divided. */
static double remainder_of(double left, double right)
{
    double rest = fmod(left, right);
    if (rest == 0) {
        return copysign(0, right);
    }
    return (right < 0) == (rest < 0) ? rest : rest + right;
}

static double floor_quotient(double left, double right)
{
    double quotient = (left - remainder_of(left, right)) / right;
    if (quotient == 0) {
        return copysign(0, left / right);
    }
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static int64_t compute_real(Operation operation, int64_t left_bits, int64_t right_bits)
{
    double left = real(left_bits), right = real(right_bits);
    switch (operation) {
    case REAL_ADD:
        return bits_of(left + right);
    case REAL_SUBTRACT:
        return bits_of(left - right);
    case REAL_MULTIPLY:
        return bits_of(left * right);
    case REAL_DIVIDE:
        return bits_of(left / right);
    case REAL_POWER:
        return bits_of(pow(left, right));
    case REAL_FLOOR_DIVIDE:
        return bits_of(floor_quotient(left, right));
    case REAL_REMAINDER:
        return bits_of(remainder_of(left, right));
    case REAL_ARC_TANGENT:
        return bits_of(atan2(left, right));
    case REAL_COPY_SIGN:
        return bits_of(copysign(left, right));
    case REAL_C_REMAINDER:
        return bits_of(fmod(left, right));
    case REAL_MINIMUM:
        return right < left ? right_bits : left_bits;
    case REAL_MAXIMUM:
        return right > left ? right_bits : left_bits;
    case REAL_LESS:
        return left < right;
    case REAL_NOT_MORE:
        return left <= right;
    case REAL_EQUAL:
        return left == right;
    default:
        return left_bits == right_bits;
    }
}

/* Whether Python, in place of this result, raises an exception: the program is to do so too. */
static bool raises(Operation operation, double right, double result)
{
    if (operation == REAL_DIVIDE) {
        return right == 0;
    }
    return operation >= REAL_POWER && operation <= REAL_C_REMAINDER && !isfinite(result);
}

static bool relations_hold(const Expectation *expected, const int64_t *numbers)
{
    int64_t stack[STACK_DEPTH];
    int depth = 0;
    const Pair *code = expected->pairs + expected->read_count;
    for (Py_ssize_t i = 0; i < expected->code_count; i++) {
        switch ((Operation)code[i].first) {
        case PUSH_SLOT:
            stack[depth++] = numbers[code[i].second];
            break;
        case PUSH_NUMBER:
            stack[depth++] = code[i].second;
            break;
        case IS_ZERO:
        case IS_NOT_ZERO:
            depth--;
            if ((stack[depth] == 0) != (code[i].first == IS_ZERO)) {
                return false;
            }
            break;
        case IS_NOT_NEGATIVE:
            if (stack[--depth] < 0) {
                return false;
            }
            break;
        case TO_REAL:
            stack[depth - 1] = bits_of((double)stack[depth - 1]);
            break;
        case REAL_FUNCTION:
            stack[depth - 1] = bits_of(functions[code[i].second](real(stack[depth - 1])));
            if (!isfinite(real(stack[depth - 1]))) {
                return false; /* Python raises an exception */
            }
            break;
        default:
            depth--;
            if (code[i].first > TO_REAL) {
                Operation operation = (Operation)code[i].first;
                stack[depth - 1] = compute_real(operation, stack[depth - 1], stack[depth]);
                if (raises(operation, real(stack[depth]), real(stack[depth - 1]))) {
                    return false;
                }
                break;
            }
            if (!compute((Operation)code[i].first, &stack[depth - 1], stack[depth])) {
                return false;
            }
        }
    }
    return true;
}

static bool read_integer(PyObject *value, int64_t *number)
{
    if (!PyLong_CheckExact(value)) {
        return false;
    }
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0;
}

static bool read_real(PyObject *value, int64_t *number)
{
    if (!PyFloat_CheckExact(value) || !isfinite(PyFloat_AS_DOUBLE(value))) {
        return false;
    }
    *number = bits_of(PyFloat_AS_DOUBLE(value));
    return true;
}

static bool read_extent(PyObject *value, int64_t what, int64_t *number)
{
    int64_t dim, *extents, index = what >= 0 ? what : -1 - what;
    TensorHandle handle = tensor_access_handle(value);
    bool read = torch_library.get_dim(handle, &dim) == 0 && index < dim &&
                (what >= 0 ? torch_library.get_sizes(handle, &extents)
                           : torch_library.get_strides(handle, &extents)) == 0;
    if (read) {
        *number = extents[index];
    }
    return read;
}

bool guard_sizes_check(GuardTest *test, PyObject *value, MetObjects *met)
{
    const Expectation *expected = expectation(test);
    for (Py_ssize_t i = 0; i < expected->read_count; i++) {
        Pair read = expected->pairs[i];
        int64_t *number = &met->sizes[read.first];
        bool found = read.second == INTEGER_ITSELF
                         ? read_integer(value, number)
                     : read.second == REAL_ITSELF
                         ? read_real(value, number)
                         : tensor_access_is_tensor(value) && read_extent(value, read.second, number);
        if (!found) {
            return false;
        }
    }
    return ++met->sized_count < expected->test_count || relations_hold(expected, met->sizes);
}

size_t guard_sizes_slots(const GuardTest *test)
{
    return test->check == guard_sizes_check ? (size_t)expectation(test)->slots : 0;
}

PyObject *guard_sizes_found(const GuardTest *test, const MetObjects *met)
{
    if (test->check != guard_sizes_check || met->sized_count < expectation(test)->test_count) {
        return NULL;
    }
    Py_ssize_t count = expectation(test)->slots;
    PyObject *numbers = PyTuple_New(count);
    for (Py_ssize_t i = 0; numbers != NULL && i < count; i++) {
        PyTuple_SET_ITEM(numbers, i, PyLong_FromLongLong(met->sizes[i]));
    }
    return numbers;
}

/* Copy a tuple of pairs of ints. -1 with an exception. */
static int take_pairs(Pair *pairs, PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        long long first, second;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "LL:pair", &first, &second)) {
            return -1;
        }
        pairs[i] = (Pair){first, second};
    }
    return 0;
}

/* Whether code and reads keep to the slots and to the stack, and leave nothing on it. */
static bool is_valid(const Expectation *expected)
{
    const Pair *code = expected->pairs + expected->read_count;
    for (Py_ssize_t i = 0; i < expected->read_count; i++) {
        if (expected->pairs[i].first < 0 || expected->pairs[i].first >= expected->slots) {
            return false;
        }
    }
    int depth = 0;
    for (Py_ssize_t i = 0; i < expected->code_count; i++) {
        bool pushes = code[i].first == PUSH_SLOT || code[i].first == PUSH_NUMBER;
        bool ends = code[i].first >= IS_ZERO;
        bool names = code[i].first == REAL_FUNCTION;
        bool replaces = code[i].first == TO_REAL || names;
        if (code[i].first < 0 || code[i].first >= OPERATION_COUNT ||
            (names && (code[i].second < 0 || code[i].second >= FUNCTION_COUNT)) ||
            (code[i].first == PUSH_SLOT &&
             (code[i].second < 0 || code[i].second >= expected->slots)) ||
            depth < (pushes ? 0 : ends || replaces ? 1 : 2)) {
            return false;
        }
        depth += pushes ? 1 : replaces ? 0 : -1;
        if (depth > STACK_DEPTH) {
            return false;
        }
    }
    return depth == 0;
}

int guard_sizes_build(GuardTest *test, PyObject *expected)
{
    Py_ssize_t slots, test_count;
    PyObject *reads, *code;
    if (!PyArg_ParseTuple(expected, "nnO!O!:sizes", &slots, &test_count, &PyTuple_Type, &reads,
                          &PyTuple_Type, &code)) {
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(reads) + PyTuple_GET_SIZE(code);
    Py_ssize_t size = (Py_ssize_t)sizeof(Expectation) + count * (Py_ssize_t)sizeof(Pair);
    test->expected = PyBytes_FromStringAndSize(NULL, size);
    if (test->expected == NULL) {
        return -1;
    }
    Expectation *made = (void *)PyBytes_AS_STRING(test->expected);
    made->slots = slots;
    made->test_count = test_count;
    made->read_count = PyTuple_GET_SIZE(reads);
    made->code_count = PyTuple_GET_SIZE(code);
    if (take_pairs(made->pairs, reads) < 0 || take_pairs(made->pairs + made->read_count, code) < 0) {
        return -1;
    }
    if (!is_valid(made)) {
        PyErr_SetString(PyExc_ValueError, "malformed relations between sizes");
        return -1;
    }
    return 0;
}
