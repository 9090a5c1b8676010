/* A call of a package: its inputs are checked, its operations run, its results made. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_launch.h"
#include "package_call.h"
#include "package_plan.h"
#include "package_torch.h"

size_t fusewright_package_input_count(const FusewrightPackage *package)
{
    return (size_t)package->leaf_count;
}

size_t fusewright_package_output_count(const FusewrightPackage *package)
{
    return (size_t)package->output_count;
}

const char *fusewright_package_input_name(const FusewrightPackage *package, size_t position)
{
    return position < (size_t)package->leaf_count ? package->leaves[position].name : NULL;
}

/* A call --------------------------------------------------------------------------------------- */

bool package_refuse(Call *call, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->message, call->message_size, format, arguments);
    va_end(arguments);
    return false;
}

void package_set_slot(Call *call, int64_t place, AtenTensorHandle tensor)
{
    if (call->slots[place].tensor != NULL) {
        torch.delete_tensor(call->slots[place].tensor);
    }
    call->slots[place].tensor = tensor;
}

void package_give_result(Call *call, int64_t place, AtenTensorHandle tensor)
{
    if (place == NOTHING) {
        torch.delete_tensor(tensor);
    } else {
        package_set_slot(call, place, tensor);
    }
}

AtenTensorHandle package_tensor_at(const Call *call, int64_t place)
{
    return place >= 0 ? call->slots[place].tensor : call->package->weights[~place];
}

static bool check_leaf(Call *call, int64_t position, AtenTensorHandle given)
{
    const Leaf *leaf = &call->package->leaves[position];
    int64_t dims, *sizes, *strides;
    int32_t dtype, device;
    if (given == NULL || torch.get_dim(given, &dims) != 0 || torch.get_dtype(given, &dtype) != 0 ||
        torch.get_device_type(given, &device) != 0 || torch.get_sizes(given, &sizes) != 0 ||
        torch.get_strides(given, &strides) != 0) {
        return package_refuse(call, "input %s is no tensor in memory", leaf->name);
    }
    if (dtype != leaf->dtype || device != CPU) {
        return package_refuse(call, "input %s is of another type, or on another device",
                              leaf->name);
    }
    bool has_sizes = dims == leaf->dims, has_strides = true;
    int64_t step = 1;
    for (int64_t i = dims - 1; i >= 0 && has_sizes; i--) {
        has_sizes = leaf->sizes[i] == ANY || sizes[i] == leaf->sizes[i];
        int64_t expected = leaf->is_contiguous ? step : leaf->strides[i];
        has_strides = has_strides && (sizes[i] == 1 || expected == ANY || strides[i] == expected);
        step *= sizes[i];
    }
    if (!has_sizes) {
        return package_refuse(call, "input %s has another size than the package was made for",
                              leaf->name);
    }
    if (has_strides || step == 0) {
        return torch.new_handle(given, &call->leaves[position]) == 0 ||
               package_refuse(call, "there is no memory for input %s", leaf->name);
    }
    int64_t *planned = call->scratch, next = 1;
    for (int64_t i = dims - 1; i >= 0; i--) {
        planned[i] = leaf->is_contiguous ? next : leaf->strides[i];
        next *= sizes[i];
        if (planned[i] == ANY) {
            return package_refuse(call, "input %s is laid out in another way", leaf->name);
        }
    }
    return (torch.empty_strided(dims, sizes, planned, dtype, CPU, 0, &call->leaves[position]) ==
                0 &&
            torch.copy(call->leaves[position], given, 0) == 0) ||
           package_refuse(call, "there is no memory for input %s", leaf->name);
}

enum { PUSH_READING, PUSH_NUMBER, DO_ADD, DO_MULTIPLY, DO_DIVIDE, DO_REMAINDER, DO_MIN, DO_MAX };

/* Store the result of an operation on sizes, as Python has it. NULL, or why there is none. */
static const char *compute(int64_t operation, int64_t left, int64_t right, int64_t *result)
{
    static const char too_large[] = "a size is too large";
    switch (operation) {
    case DO_ADD:
        return __builtin_add_overflow(left, right, result) ? too_large : NULL;
    case DO_MULTIPLY:
        return __builtin_mul_overflow(left, right, result) ? too_large : NULL;
    case DO_DIVIDE:
    case DO_REMAINDER: {
        if (right == 0) {
            return "a size is divided by zero";
        }
        if (right == -1 && left == INT64_MIN) {
            return too_large;
        }
        int64_t rest = left % right;
        bool corrects = rest != 0 && (rest < 0) != (right < 0);
        *result = operation == DO_DIVIDE ? left / right - corrects : rest + (corrects ? right : 0);
        return NULL;
    }
    case DO_MIN:
        *result = left < right ? left : right;
        return NULL;
    default:
        *result = left > right ? left : right;
        return NULL;
    }
}

/* The difference of a relation, for the sizes that were read; false where there is none. */
static bool evaluate(const Call *call, const Relation *relation, int64_t *result)
{
    int64_t stack[MOST_DEPTH];
    size_t depth = 0;
    for (int64_t i = 0; i < relation->count; i++) {
        int64_t operation = relation->code[2 * i], value = relation->code[2 * i + 1];
        if (operation == PUSH_READING || operation == PUSH_NUMBER) {
            bool is_reading = operation == PUSH_READING;
            if (depth == MOST_DEPTH ||
                (is_reading && (value < 0 || value >= call->package->reading_count))) {
                return false;
            }
            stack[depth++] = is_reading ? call->readings[value] : value;
            continue;
        }
        if (depth < 2) {
            return false;
        }
        int64_t right = stack[--depth], *left = &stack[depth - 1];
        if (compute(operation, *left, right, left) != NULL) {
            return false;
        }
    }
    *result = depth == 1 ? stack[0] : 0;
    return depth == 1;
}

static bool check_relations(Call *call)
{
    const FusewrightPackage *package = call->package;
    for (int64_t i = 0; i < package->reading_count; i++) {
        const int64_t *reading = package->readings + 3 * i;
        int64_t *extents;
        AtenTensorHandle tensor = call->leaves[reading[0]];
        if ((reading[2] ? torch.get_strides : torch.get_sizes)(tensor, &extents) != 0) {
            return package_refuse(call, "the sizes of an input cannot be read");
        }
        call->readings[i] = extents[reading[1]];
    }
    for (int64_t i = 0; i < package->relation_count; i++) {
        const Relation *relation = &package->relations[i];
        int64_t difference;
        bool holds = evaluate(call, relation, &difference) &&
                     (relation->kind == 0   ? difference == 0
                      : relation->kind == 1 ? difference != 0
                                            : difference >= 0);
        if (!holds) {
            return package_refuse(call, "the package was made for %s", relation->words);
        }
    }
    return true;
}

static bool take_inputs(Call *call, const AtenTensorHandle *given)
{
    const FusewrightPackage *package = call->package;
    for (int64_t i = 0; i < package->leaf_count; i++) {
        if (!check_leaf(call, i, given[i])) {
            return false;
        }
    }
    if (!check_relations(call)) {
        return false;
    }
    for (int64_t i = 0; i < call->block->input_count; i++) {
        int64_t kind = package->inputs[2 * i], index = package->inputs[2 * i + 1];
        if (kind == FROM_NUMBER) {
            call->slots[i].number = call->readings[index];
            continue;
        }
        if (kind == FROM_NOWHERE) {
            continue;
        }
        AtenTensorHandle tensor = kind == FROM_LEAF ? call->leaves[index] : package->weights[index];
        if (torch.new_handle(tensor, &call->slots[i].tensor) != 0) {
            return package_refuse(call, "there is no memory");
        }
    }
    return true;
}

/* Operations ----------------------------------------------------------------------------------- */

static void gather(const Call *call, const int64_t *places, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        call->scratch[i] = call->numbers[places[i]];
    }
}

static bool combine(Call *call, const int64_t *operands, int64_t operation)
{
    const int64_t *numbers = call->numbers;
    const char *why_not = compute(operation, numbers[operands[1]], numbers[operands[2]],
                                  &call->numbers[operands[0]]);
    return why_not == NULL || package_refuse(call, "%s", why_not);
}

static bool op_add(Call *call, const int64_t *operands)
{
    return combine(call, operands, DO_ADD);
}

static bool op_multiply(Call *call, const int64_t *operands)
{
    return combine(call, operands, DO_MULTIPLY);
}

static bool op_divide(Call *call, const int64_t *operands)
{
    return combine(call, operands, DO_DIVIDE);
}

static bool op_remainder(Call *call, const int64_t *operands)
{
    return combine(call, operands, DO_REMAINDER);
}

static bool op_min(Call *call, const int64_t *operands)
{
    return combine(call, operands, DO_MIN);
}

static bool op_max(Call *call, const int64_t *operands)
{
    return combine(call, operands, DO_MAX);
}

static bool op_read_number(Call *call, const int64_t *operands)
{
    call->numbers[operands[0]] = call->slots[operands[1]].number;
    return true;
}

static bool read_extent(Call *call, const int64_t *operands,
                        int32_t (*read)(AtenTensorHandle, int64_t **))
{
    AtenTensorHandle tensor = package_tensor_at(call, operands[1]);
    int64_t dims, *extents;
    if (tensor == NULL || torch.get_dim(tensor, &dims) != 0 || operands[2] < 0 ||
        operands[2] >= dims || read(tensor, &extents) != 0) {
        return package_refuse(call, "a tensor has no such dimension");
    }
    call->numbers[operands[0]] = extents[operands[2]];
    return true;
}

static bool op_read_size(Call *call, const int64_t *operands)
{
    return read_extent(call, operands, torch.get_sizes);
}

static bool op_read_stride(Call *call, const int64_t *operands)
{
    return read_extent(call, operands, torch.get_strides);
}

static bool op_allocate(Call *call, const int64_t *operands)
{
    int64_t dims = operands[2];
    AtenTensorHandle tensor;
    gather(call, operands + 3, 2 * dims);
    if (torch.empty_strided(dims, call->scratch, call->scratch + dims, (int32_t)operands[1], CPU,
                            0, &tensor) != 0) {
        return package_refuse(call, "there is no memory for a tensor");
    }
    package_set_slot(call, operands[0], tensor);
    return true;
}

static bool op_move(Call *call, const int64_t *operands)
{
    AtenTensorHandle tensor = call->slots[operands[1]].tensor;
    call->slots[operands[1]].tensor = NULL;
    package_set_slot(call, operands[0], tensor);
    return true;
}

static bool op_reinterpret(Call *call, const int64_t *operands)
{
    int64_t dims = operands[2], offset = call->numbers[operands[3 + 2 * dims]];
    AtenTensorHandle source = package_tensor_at(call, operands[1]), tensor;
    gather(call, operands + 3, 2 * dims);
    if (source == NULL || torch.reinterpret(source, dims, call->scratch, call->scratch + dims,
                                            offset, &tensor) != 0) {
        return package_refuse(call, "memory cannot be seen through another layout");
    }
    package_set_slot(call, operands[0], tensor);
    return true;
}

/* slot, arena, dtype, offset in bytes, dimensions, sizes, strides */
static bool op_place(Call *call, const int64_t *operands)
{
    int64_t dims = operands[4];
    AtenTensorHandle arena = package_tensor_at(call, operands[1]), tensor;
    gather(call, operands + 5, 2 * dims);
    if (arena == NULL || torch.place_in(arena, operands[3], (int32_t)operands[2], dims,
                                        call->scratch, call->scratch + dims, &tensor) != 0) {
        return package_refuse(call, "a buffer cannot be placed in its arena");
    }
    package_set_slot(call, operands[0], tensor);
    return true;
}

static bool op_release(Call *call, const int64_t *operands)
{
    package_set_slot(call, operands[0], NULL);
    return true;
}

static bool op_launch(Call *call, const int64_t *operands)
{
    const Kernel *kernel = &call->package->kernels[operands[0]];
    int64_t tensors = operands[1];
    const int64_t *places = operands + 2, *sizes = places + tensors + 1;
    int64_t numbers = places[tensors];
    void **arguments = (void **)call->scratch;
    for (int64_t i = 0; i < tensors; i++) {
        AtenTensorHandle tensor = package_tensor_at(call, places[i]);
        if (tensor == NULL || torch.get_data_ptr(tensor, &arguments[i]) != 0) {
            return package_refuse(call, "%s: an argument has no data in memory", kernel->name);
        }
    }
    for (int64_t i = 0; i < numbers; i++) {
        call->scratch[tensors + i] = call->numbers[sizes[i]];
    }
    int64_t units = call->numbers[sizes[numbers]], grain = sizes[numbers + 1];
    int64_t fault = kernel_launch(kernel->function, arguments, units, grain);
    return fault == 0 ||
           package_refuse(call,
                          fault == INDEX_OUT_OF_RANGE ? "index out of range in compiled kernel %s"
                                                      : "division by zero in compiled kernel %s",
                          kernel->name);
}

static bool has_multiplied(Call *call, int32_t refusal)
{
    return refusal == 0 || package_refuse(call, "torch refuses a product of these matrices");
}

/* left, right, result */
static bool multiply(Call *call, const int64_t *operands,
                     int32_t (*product)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle))
{
    AtenTensorHandle left = package_tensor_at(call, operands[0]);
    AtenTensorHandle right = package_tensor_at(call, operands[1]);
    return has_multiplied(call, product(package_tensor_at(call, operands[2]), left, right));
}

static bool op_mm(Call *call, const int64_t *operands)
{
    return multiply(call, operands, torch.mm_out);
}

static bool op_bmm(Call *call, const int64_t *operands)
{
    return multiply(call, operands, torch.bmm_out);
}

/* bias, left, right, result */
static bool op_addmm(Call *call, const int64_t *operands)
{
    AtenTensorHandle bias = package_tensor_at(call, operands[0]);
    AtenTensorHandle left = package_tensor_at(call, operands[1]);
    AtenTensorHandle right = package_tensor_at(call, operands[2]);
    AtenTensorHandle result = package_tensor_at(call, operands[3]);
    return has_multiplied(call, torch.addmm_out(result, bias, left, right, 1, 1));
}

/* target, source */
static bool op_copy(Call *call, const int64_t *operands)
{
    AtenTensorHandle source = package_tensor_at(call, operands[1]);
    return torch.copy(package_tensor_at(call, operands[0]), source, 0) == 0 ||
           package_refuse(call, "a tensor cannot be copied");
}

static bool op_ensure_layout(Call *call, const int64_t *operands)
{
    int64_t dims = operands[2], own_dims, *sizes, *strides;
    AtenTensorHandle tensor = call->slots[operands[0]].tensor, planned;
    int32_t dtype;
    gather(call, operands + 3, 2 * dims);
    size_t bytes = (size_t)dims * sizeof(int64_t);
    if (tensor == NULL || torch.get_dim(tensor, &own_dims) != 0 || own_dims != dims ||
        torch.get_dtype(tensor, &dtype) != 0 || dtype != operands[1] ||
        torch.get_sizes(tensor, &sizes) != 0 || memcmp(sizes, call->scratch, bytes) != 0 ||
        torch.get_strides(tensor, &strides) != 0) {
        return package_refuse(call, "a library call returned another tensor than was compiled for");
    }
    bool is_same = true;
    for (int64_t i = 0; i < dims; i++) {
        is_same = is_same && (sizes[i] == 1 || strides[i] == call->scratch[dims + i]);
    }
    if (is_same) {
        return true;
    }
    if (torch.empty_strided(dims, call->scratch, call->scratch + dims, dtype, CPU, 0, &planned) !=
            0 ||
        torch.copy(planned, tensor, 0) != 0) {
        return package_refuse(call, "there is no memory for a tensor");
    }
    package_set_slot(call, operands[0], planned);
    return true;
}

static uint64_t new_reference(Call *call, int64_t place)
{
    AtenTensorHandle tensor = package_tensor_at(call, place), reference = NULL;
    if (tensor != NULL) {
        torch.new_handle(tensor, &reference);
    }
    return (uint64_t)(uintptr_t)reference;
}

/* The item at `*at` of a list of this kind, in torch's form; `*at` is moved behind it. */
static uint64_t next_item(Call *call, int64_t kind, const int64_t **at)
{
    int64_t first = *(*at)++;
    switch (kind) {
    case TENSORS:
        return new_reference(call, first);
    case OPTIONAL_TENSORS:
        return first == NOTHING ? 0 : package_torch_optional(new_reference(call, first));
    default: { /* an integer, or where it is */
        int64_t value = *(*at)++;
        return (uint64_t)(first != 0 ? call->numbers[value] : value);
    }
    }
}

/* The list at `*at`, which is moved behind it. */
static uint64_t new_list_of(Call *call, int64_t kind, const int64_t **at)
{
    int64_t count = *(*at)++;
    void *list = NULL;
    torch.new_list((size_t)count, &list);
    for (int64_t i = 0; i < count; i++) {
        torch.list_push(list, next_item(call, kind, at));
    }
    return (uint64_t)(uintptr_t)list;
}

/* The text at `*at`, which is moved behind it. */
static uint64_t new_text(const int64_t **at)
{
    int64_t length = *(*at)++;
    void *text = NULL;
    torch.new_text((const char *)*at, (size_t)length, &text);
    *at += length / 8 + 1;
    return (uint64_t)(uintptr_t)text;
}

/* The next argument, in torch's form. */
static uint64_t next_argument(Call *call, const int64_t **at)
{
    int64_t kind = *(*at)++;
    switch (kind) {
    case TENSOR:
        return new_reference(call, *(*at)++);
    case OPTIONAL_TENSOR:
        return package_torch_optional(new_reference(call, *(*at)++));
    case WORD:
        return (uint64_t)*(*at)++;
    case OPTIONAL_WORD:
        return package_torch_optional((uint64_t)*(*at)++);
    case NUMBER:
        return (uint64_t)call->numbers[*(*at)++];
    case OPTIONAL_NUMBER:
        return package_torch_optional((uint64_t)call->numbers[*(*at)++]);
    case INTEGERS:
    case TENSORS:
    case OPTIONAL_TENSORS:
        return new_list_of(call, kind, at);
    case OPTIONAL_INTEGERS:
        return package_torch_optional(new_list_of(call, kind, at));
    case TEXT:
        return new_text(at);
    case OPTIONAL_TEXT:
        return package_torch_optional(new_text(at));
    default:
        return 0;
    }
}

/* operator, how many results, a slot or NOTHING each, how many arguments, arguments */
static bool op_dispatch(Call *call, const int64_t *operands)
{
    const Operator *operation = &call->package->operators[operands[0]];
    int64_t results = operands[1], arguments = operands[2 + results];
    const int64_t *at = operands + 3 + results;
    uint64_t stack[MOST_ARGUMENTS] = {0};
    for (int64_t i = 0; i < arguments; i++) {
        stack[i] = next_argument(call, &at);
    }
    if (package_torch_dispatch(operation->name, operation->overload, stack) != 0) {
        return package_refuse(call, "%s.%s failed", operation->name, operation->overload);
    }
    for (int64_t i = 0; i < results; i++) {
        package_give_result(call, operands[2 + i], (AtenTensorHandle)(uintptr_t)stack[i]);
    }
    return true;
}

/* a number, how many words, a text that ends with them or a zero: what fails where it is negative */
static bool op_check_fact(Call *call, const int64_t *operands)
{
    return call->numbers[operands[0]] >= 0 ||
           package_refuse(call, "%.*s", (int)(8 * operands[1]), (const char *)(operands + 2));
}

static bool op_return(Call *call, const int64_t *operands)
{
    call->returned_count = operands[0];
    for (int64_t i = 0; i < operands[0]; i++) {
        int64_t place = operands[1 + i];
        call->returned[i] = place == NOTHING ? NULL : package_tensor_at(call, place);
    }
    return true;
}

static bool (*const operations[])(Call *, const int64_t *) = {
    op_add,         op_multiply,   op_divide,      op_remainder, op_min,     op_max,
    op_read_number, op_read_size,  op_read_stride, op_allocate,  op_move,    op_reinterpret,
    op_release,     op_launch,     op_mm,          op_bmm,       op_addmm,   op_copy,
    op_ensure_layout, op_dispatch, op_return,      op_place,     op_check_fact,
    package_branch, package_while_loop, package_scan,
};

bool package_run_operations(Call *call)
{
    const int64_t *at = call->block->words, *end = at + call->block->word_count;
    for (; at < end; at += at[1]) {
        if (!operations[at[0]](call, at + 2)) {
            return false;
        }
    }
    return true;
}

/* Results -------------------------------------------------------------------------------------- */

/* A new reference to what a recipe makes; NULL where it fails, or makes no tensor. */
static AtenTensorHandle result_of(const Call *call, const int64_t *recipe)
{
    AtenTensorHandle source = NULL, result = NULL;
    switch (recipe[0]) {
    case IS_OUTPUT:
        source = recipe[1] < call->returned_count ? call->returned[recipe[1]] : NULL;
        break;
    case IS_LEAF:
        source = call->leaves[recipe[1]];
        break;
    case IS_WEIGHT:
        source = call->package->weights[recipe[1]];
        break;
    case IS_RESULT:
        return result_of(call, call->package->recipes[recipe[1]]);
    case IS_VIEW: { /* its base, dimensions, sizes, strides, offset */
        int64_t dims = recipe[2];
        AtenTensorHandle base = result_of(call, call->package->recipes[recipe[1]]);
        if (base != NULL) {
            torch.reinterpret(base, dims, recipe + 3, recipe + 3 + dims, recipe[3 + 2 * dims],
                              &result);
            torch.delete_tensor(base);
        }
        return result;
    }
    default:
        return NULL;
    }
    if (source != NULL) {
        torch.new_handle(source, &result);
    }
    return result;
}

static bool give_outputs(Call *call, AtenTensorHandle *outputs)
{
    const FusewrightPackage *package = call->package;
    for (int64_t i = 0; i < package->output_count; i++) {
        outputs[i] = result_of(call, package->recipes[package->outputs[i]]);
        if (outputs[i] == NULL) {
            while (i-- > 0) {
                torch.delete_tensor(outputs[i]);
            }
            return package_refuse(call, "a result cannot be made");
        }
    }
    return true;
}

bool package_begin(Call *call)
{
    const Block *block = call->block;
    size_t slots = (size_t)block->slot_count, numbers = (size_t)block->number_count;
    size_t scratch = (size_t)block->word_count + 64;
    call->slots = calloc(slots + 1, sizeof *call->slots);
    call->numbers = calloc(numbers + scratch, sizeof(int64_t));
    call->returned = calloc(scratch, sizeof(AtenTensorHandle));
    if (call->slots == NULL || call->numbers == NULL || call->returned == NULL) {
        return package_refuse(call, "there is no memory for a call");
    }
    call->scratch = call->numbers + numbers;
    memcpy(call->numbers, block->numbers, numbers * sizeof(int64_t));
    return true;
}

void package_end(Call *call)
{
    for (int64_t i = 0; call->slots != NULL && i < call->block->slot_count; i++) {
        package_set_slot(call, i, NULL);
    }
    free(call->slots);
    free(call->numbers);
    free(call->returned);
}

int fusewright_package_run(const FusewrightPackage *package, const AtenTensorHandle *inputs,
                           AtenTensorHandle *outputs, char *message, size_t message_size)
{
    Call call = {.package = package,
                 .block = package->blocks,
                 .message = message,
                 .message_size = message_size};
    size_t leaves = (size_t)package->leaf_count;
    call.leaves = calloc(leaves + 1, sizeof(AtenTensorHandle));
    call.readings = calloc((size_t)package->reading_count + 1, sizeof(int64_t));
    bool is_done = package_begin(&call);
    if (is_done && (call.leaves == NULL || call.readings == NULL)) {
        is_done = package_refuse(&call, "there is no memory for a call");
    }
    if (is_done) {
        bool had_grad = torch.grad_mode_is_enabled();
        torch.grad_mode_set_enabled(false);
        is_done = take_inputs(&call, inputs) && package_check_writes(&call, inputs) &&
                  package_run_operations(&call) && package_write_values(&call, inputs) &&
                  give_outputs(&call, outputs);
        torch.grad_mode_set_enabled(had_grad);
    }
    package_end(&call);
    for (size_t i = 0; call.leaves != NULL && i < leaves; i++) {
        if (call.leaves[i] != NULL) {
            torch.delete_tensor(call.leaves[i]);
        }
    }
    free(call.leaves);
    free(call.readings);
    return is_done ? 0 : -1;
}
