/* Conditions and loops of a package: which of its blocks run, how often, and on what. */
#include <stdlib.h>
#include <string.h>

#include "package_call.h"
#include "package_torch.h"

static void delete_tensors(AtenTensorHandle *tensors, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (tensors[i] != NULL) {
            torch.delete_tensor(tensors[i]);
            tensors[i] = NULL;
        }
    }
}

/* The arguments that pairs of words name; their tensors are borrowed. NULL: there is no memory. */
static Slot *arguments_at(Call *call, const int64_t *pairs, int64_t count)
{
    Slot *arguments = calloc((size_t)count + 1, sizeof *arguments);
    for (int64_t i = 0; arguments != NULL && i < count; i++) {
        int64_t kind = pairs[2 * i], place = pairs[2 * i + 1];
        if (kind == FROM_NUMBERS) {
            arguments[i].number = call->numbers[place];
            continue;
        }
        arguments[i].tensor = package_tensor_at(call, place);
        arguments[i].number = place >= 0 ? call->slots[place].number : 0;
    }
    if (arguments == NULL) {
        package_refuse(call, "there is no memory for a call");
    }
    return arguments;
}

/* Run a block, and take the first `count` of its results, which the caller then owns. */
static bool run_block(Call *outer, int64_t index, const Slot *arguments, AtenTensorHandle *results,
                      int64_t count)
{
    Call call = {.package = outer->package,
                 .block = &outer->package->blocks[index],
                 .message = outer->message,
                 .message_size = outer->message_size};
    bool is_done = package_begin(&call);
    for (int64_t i = 0; is_done && i < call.block->input_count; i++) {
        call.slots[i].number = arguments[i].number;
        if (arguments[i].tensor != NULL) {
            is_done = torch.new_handle(arguments[i].tensor, &call.slots[i].tensor) == 0;
        }
    }
    is_done = is_done && package_run_operations(&call);
    memset(results, 0, (size_t)count * sizeof *results);
    for (int64_t i = 0; is_done && i < count; i++) {
        AtenTensorHandle result = i < call.returned_count ? call.returned[i] : NULL;
        is_done = (result != NULL && torch.new_handle(result, &results[i]) == 0) ||
                  package_refuse(&call, "a block of a condition or loop returns no tensor");
    }
    if (!is_done) {
        delete_tensors(results, count);
    }
    package_end(&call);
    return is_done;
}

/* Put results into slots, and delete those that nothing reads. */
static void give_results(Call *call, const int64_t *slots, AtenTensorHandle *results, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        package_give_result(call, slots[i], results[i]);
        results[i] = NULL;
    }
}

/* predicate, a block where it holds, another where it does not, how many arguments, arguments, how
   many results, a slot or NOTHING each */
bool package_branch(Call *call, const int64_t *operands)
{
    int64_t count = operands[3];
    const int64_t *slots = operands + 4 + 2 * count;
    AtenTensorHandle predicate = package_tensor_at(call, operands[0]);
    bool holds;
    if (predicate == NULL || torch.item_bool(predicate, &holds) != 0) {
        return package_refuse(call, "a condition has no value");
    }
    Slot *arguments = arguments_at(call, operands + 4, count);
    AtenTensorHandle *results = calloc((size_t)slots[0] + 1, sizeof *results);
    bool is_done = arguments != NULL && results != NULL &&
                   run_block(call, operands[holds ? 1 : 2], arguments, results, slots[0]);
    if (is_done) {
        give_results(call, slots + 1, results, slots[0]);
    }
    free(arguments);
    free(results);
    return is_done;
}

/* What is carried from step to step: `values` and, while a step runs, `next`; both own tensors. */
typedef struct {
    int64_t count;
    AtenTensorHandle *values, *next;
} Carried;

static bool begin_carrying(Call *call, Carried *carried, Slot *arguments, int64_t next)
{
    size_t count = (size_t)carried->count;
    carried->values = calloc(count + 1, sizeof *carried->values);
    carried->next = calloc((size_t)next + 1, sizeof *carried->next);
    bool is_done = carried->values != NULL && carried->next != NULL;
    for (size_t i = 0; is_done && i < count; i++) {
        is_done = arguments[i].tensor != NULL &&
                  torch.new_handle(arguments[i].tensor, &carried->values[i]) == 0;
    }
    return is_done || package_refuse(call, "a loop carries what is no tensor");
}

/* The results of a step become what is carried; arguments borrow it. */
static void carry_on(Carried *carried, Slot *arguments)
{
    delete_tensors(carried->values, carried->count);
    for (int64_t i = 0; i < carried->count; i++) {
        arguments[i].tensor = carried->values[i] = carried->next[i];
        carried->next[i] = NULL;
    }
}

static void end_carrying(Carried *carried)
{
    if (carried->values != NULL) {
        delete_tensors(carried->values, carried->count);
    }
    free(carried->values);
    free(carried->next);
}

/* Whether two of some tensors begin at one address. */
static bool share_memory(AtenTensorHandle *tensors, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < i; j++) {
            void *left, *right;
            if (torch.get_data_ptr(tensors[i], &left) != 0 ||
                torch.get_data_ptr(tensors[j], &right) != 0 || left == right) {
                return true;
            }
        }
    }
    return false;
}

/* The values at the end share no memory with one another, nor, where there was no step, with what
   the loop began with. */
static bool make_distinct(Call *call, Carried *carried, bool has_run)
{
    if (has_run && !share_memory(carried->values, carried->count)) {
        return true;
    }
    for (int64_t i = 0; i < carried->count; i++) {
        AtenTensorHandle copy;
        if (torch.clone(carried->values[i], &copy) != 0) {
            return package_refuse(call, "there is no memory for a tensor");
        }
        torch.delete_tensor(carried->values[i]);
        carried->values[i] = copy;
    }
    return true;
}

/* the block that tells whether to go on, the body, how much is carried, how many arguments,
   arguments, how many results, a slot or NOTHING each */
bool package_while_loop(Call *call, const int64_t *operands)
{
    Carried carried = {.count = operands[2]};
    int64_t count = operands[3];
    const int64_t *slots = operands + 4 + 2 * count;
    Slot *arguments = arguments_at(call, operands + 4, count);
    bool is_done =
        arguments != NULL && begin_carrying(call, &carried, arguments, carried.count);
    bool holds = true, has_run = false;
    while (is_done) {
        AtenTensorHandle condition;
        is_done = run_block(call, operands[0], arguments, &condition, 1);
        if (is_done) {
            is_done = torch.item_bool(condition, &holds) == 0 ||
                      package_refuse(call, "a condition has no value");
            torch.delete_tensor(condition);
        }
        if (!is_done || !holds) {
            break;
        }
        is_done = run_block(call, operands[1], arguments, carried.next, carried.count);
        if (is_done) {
            carry_on(&carried, arguments);
            has_run = true;
        }
    }
    is_done = is_done && make_distinct(call, &carried, has_run);
    if (is_done) {
        give_results(call, slots + 1, carried.values, carried.count);
    }
    end_carrying(&carried);
    free(arguments);
    return is_done;
}

/* The operands of a scan, and what it stacks: of each position, a tensor that each step gives. */
typedef struct {
    int64_t body, sliced, count, steps, stack_count, result_count;
    bool is_reversed;
    const int64_t *pairs, *positions, *slots;
    Carried carried;
    Slot *arguments;
    AtenTensorHandle *stacks;
} Scan;

/* A slice along the first dimension, which the caller owns; false where there is none. */
static bool slice_of(AtenTensorHandle tensor, int64_t step, AtenTensorHandle *slice)
{
    int64_t dims, *sizes, *strides;
    return tensor != NULL && torch.get_dim(tensor, &dims) == 0 && dims > 0 &&
           torch.get_sizes(tensor, &sizes) == 0 && torch.get_strides(tensor, &strides) == 0 &&
           step < sizes[0] &&
           torch.reinterpret(tensor, dims - 1, sizes + 1, strides + 1, step * strides[0],
                             slice) == 0;
}

/* Run the step for one slice, whose values are stacked at that place. */
static bool scan_step(Call *call, Scan *scan, const Slot *given, int64_t step)
{
    int64_t carried = scan->carried.count, results = scan->result_count;
    bool is_done = true;
    for (int64_t i = carried; i < carried + scan->sliced; i++) {
        scan->arguments[i].tensor = NULL;
        is_done = is_done && (slice_of(given[i].tensor, step, &scan->arguments[i].tensor) ||
                              package_refuse(call, "the slices of a loop are of different number"));
    }
    is_done = is_done && run_block(call, scan->body, scan->arguments, scan->carried.next, results);
    for (int64_t i = carried; i < carried + scan->sliced; i++) {
        delete_tensors(&scan->arguments[i].tensor, 1);
    }
    for (int64_t i = 0; is_done && i < scan->stack_count; i++) {
        int64_t position = scan->positions[i];
        AtenTensorHandle value = position < carried ? scan->carried.values[position]
                                                    : scan->carried.next[position - carried];
        is_done = torch.new_handle(value, &scan->stacks[i * scan->steps + step]) == 0;
    }
    if (is_done) {
        delete_tensors(scan->carried.next + carried, results - carried);
        carry_on(&scan->carried, scan->arguments);
    } else {
        delete_tensors(scan->carried.next, results);
    }
    return is_done;
}

/* The stack of what the steps gave, which it takes over. */
static bool stack_of(Call *call, AtenTensorHandle *tensors, int64_t count, AtenTensorHandle *stack)
{
    void *list = NULL;
    if (torch.new_list((size_t)count, &list) != 0) {
        return package_refuse(call, "there is no memory for a call");
    }
    for (int64_t i = 0; i < count; i++) {
        torch.list_push(list, (uint64_t)(uintptr_t)tensors[i]);
        tensors[i] = NULL;
    }
    uint64_t operands[] = {(uint64_t)(uintptr_t)list, 0};
    if (package_torch_dispatch("aten::stack", "", operands) != 0) {
        return package_refuse(call, "the results of a loop's steps cannot be stacked");
    }
    *stack = (AtenTensorHandle)(uintptr_t)operands[0];
    return true;
}

static bool run_scan(Call *call, Scan *scan)
{
    int64_t dims, *sizes, carried = scan->carried.count;
    Slot *given = arguments_at(call, scan->pairs, scan->count);
    AtenTensorHandle first = given == NULL ? NULL : given[carried].tensor;
    bool is_done = first != NULL && torch.get_dim(first, &dims) == 0 && dims > 0 &&
                   torch.get_sizes(first, &sizes) == 0;
    scan->steps = is_done ? sizes[0] : 0;
    is_done = is_done || package_refuse(call, "a loop has no slices");
    size_t stacked = (size_t)(scan->stack_count * scan->steps);
    scan->stacks = calloc(stacked + 1, sizeof *scan->stacks);
    is_done = is_done &&
              (scan->stacks != NULL || package_refuse(call, "there is no memory for a call")) &&
              begin_carrying(call, &scan->carried, scan->arguments, scan->result_count);
    for (int64_t i = 0; is_done && i < scan->steps; i++) {
        is_done = scan_step(call, scan, given, scan->is_reversed ? scan->steps - 1 - i : i);
    }
    free(given);
    is_done = is_done && make_distinct(call, &scan->carried, scan->steps > 0);
    for (int64_t i = 0; is_done && i < scan->stack_count; i++) {
        AtenTensorHandle stack;
        is_done = stack_of(call, scan->stacks + i * scan->steps, scan->steps, &stack);
        if (is_done) {
            give_results(call, scan->slots + carried + i, &stack, 1);
        }
    }
    if (is_done) {
        give_results(call, scan->slots, scan->carried.values, carried);
    }
    if (scan->stacks != NULL) {
        delete_tensors(scan->stacks, (int64_t)stacked);
    }
    return is_done;
}

/* the body, how much is carried, over how many arguments behind these it goes, whether from the
   last slice on, how many arguments, arguments, how many positions, of what is stacked: first those
   among the values that a step is given, behind them its results; how many results, a slot or
   NOTHING each */
bool package_scan(Call *call, const int64_t *operands)
{
    int64_t count = operands[4];
    const int64_t *positions = operands + 5 + 2 * count;
    Scan scan = {.body = operands[0],
                 .carried.count = operands[1],
                 .sliced = operands[2],
                 .is_reversed = operands[3] != 0,
                 .count = count,
                 .pairs = operands + 5,
                 .stack_count = positions[0],
                 .positions = positions + 1,
                 .slots = positions + 2 + positions[0],
                 .result_count = operands[1]};
    for (int64_t i = 0; i < scan.stack_count; i++) {
        int64_t results = scan.positions[i] - scan.carried.count + 1;
        scan.result_count = results > scan.result_count ? results : scan.result_count;
    }
    scan.arguments = arguments_at(call, scan.pairs, count);
    bool is_done = scan.arguments != NULL && run_scan(call, &scan);
    end_carrying(&scan.carried);
    free(scan.arguments);
    free(scan.stacks);
    return is_done;
}
