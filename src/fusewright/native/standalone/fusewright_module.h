// What generated C++ is written with: tensors that free themselves, calls of torch's operators, and
// launches of compiled kernels, over libtorch's stable C functions. `fusewright package --cpp`
// writes such C++; fusewright_run is what it exports.
#ifndef FUSEWRIGHT_MODULE_H
#define FUSEWRIGHT_MODULE_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernel_launch.h"
#include "package_torch.h"

extern "C" {

// A tensor or number that a module is given or returns.
enum FusewrightKind { FUSEWRIGHT_NONE, FUSEWRIGHT_TENSOR, FUSEWRIGHT_INTEGER, FUSEWRIGHT_REAL,
                      FUSEWRIGHT_BOOLEAN };
typedef struct {
    int64_t kind;
    AtenTensorHandle tensor;
    int64_t integer;
    double real;
} FusewrightValue;

// What a module returns: 0, or why it could not do its work, with a sentence in `message`.
enum FusewrightError { FUSEWRIGHT_DONE, FUSEWRIGHT_FAILED, FUSEWRIGHT_INDEX, FUSEWRIGHT_NAN,
                       FUSEWRIGHT_LAYOUT };

// Where a module's debug printer writes, and keeps tensors as files; a host may set its own. By
// default it writes to the standard output, and keeps none. The tensor becomes the host's.
typedef struct {
    void (*print)(const char *text);
    int (*save)(const char *folder, const char *name, AtenTensorHandle tensor);
} FusewrightHost;
}

namespace fusewright {

// Errors ------------------------------------------------------------------------------------------

struct Failure : std::runtime_error {
    FusewrightError code;
    Failure(FusewrightError code, const std::string &text) : std::runtime_error(text), code(code) {}
};

inline void check(int32_t error, const std::string &what)
{
    if (error != 0) {
        const char *why = torch.last_error != nullptr ? torch.last_error() : nullptr;
        throw Failure(FUSEWRIGHT_FAILED, why != nullptr ? why : what + " failed");
    }
}

// Tensors -----------------------------------------------------------------------------------------

// Torch's numbers of element types.
enum Dtype : int32_t {
    uint8_type = 0, int8_type = 1, int16_type = 2, int32_type = 3, int64_type = 4,
    float16_type = 5, float32_type = 6, float64_type = 7, complex32_type = 8, complex64_type = 9,
    complex128_type = 10, bool_type = 11, bfloat16_type = 15, uint64_type = 29,
};

using Integers = std::vector<int64_t>;

inline AtenTensorHandle new_reference(AtenTensorHandle tensor)
{
    AtenTensorHandle reference;
    check(torch.new_handle(tensor, &reference), "a reference to a tensor");
    return reference;
}

class Tensor {
public:
    Tensor() = default;
    explicit Tensor(AtenTensorHandle owned) : handle_(owned) {}
    Tensor(Tensor &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Tensor(const Tensor &other)
    {
        if (other.handle_ != nullptr) {
            handle_ = new_reference(other.handle_);
        }
    }
    Tensor &operator=(Tensor other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Tensor() { reset(); }

    void reset()
    {
        if (handle_ != nullptr) {
            torch.delete_tensor(std::exchange(handle_, nullptr));
        }
    }
    AtenTensorHandle get() const { return handle_; }
    AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

    int64_t dims() const
    {
        int64_t dims;
        check(torch.get_dim(handle_, &dims), "reading a tensor");
        return dims;
    }
    Integers sizes() const { return extents(torch.get_sizes); }
    Integers strides() const { return extents(torch.get_strides); }
    int64_t size(int64_t dimension) const { return sizes().at(static_cast<size_t>(dimension)); }
    int64_t offset() const
    {
        int64_t offset;
        check(torch.get_offset(handle_, &offset), "reading a tensor");
        return offset;
    }
    int32_t dtype() const
    {
        int32_t dtype;
        check(torch.get_dtype(handle_, &dtype), "reading a tensor");
        return dtype;
    }
    void *data() const
    {
        void *data;
        check(torch.get_data_ptr(handle_, &data), "reading a tensor's memory");
        return data;
    }
    int64_t count() const
    {
        int64_t count = 1;
        for (int64_t size : sizes()) {
            count *= size;
        }
        return count;
    }

private:
    Integers extents(int32_t (*read)(AtenTensorHandle, int64_t **)) const
    {
        int64_t *first;
        check(read(handle_, &first), "reading a tensor");
        return Integers(first, first + dims());
    }

    AtenTensorHandle handle_ = nullptr;
};

inline Tensor empty(const Integers &sizes, const Integers &strides, Dtype dtype)
{
    AtenTensorHandle handle;
    check(torch.empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                              dtype, CPU, 0, &handle),
          "allocating memory");
    return Tensor(handle);
}

// A tensor in the memory of an arena, from `offset` bytes on.
inline Tensor place(const Tensor &arena, int64_t offset, const Integers &sizes,
                    const Integers &strides, Dtype dtype)
{
    AtenTensorHandle handle;
    check(torch.place_in(arena.get(), offset, dtype, static_cast<int64_t>(sizes.size()),
                         sizes.data(), strides.data(), &handle),
          "placing a buffer in its arena");
    return Tensor(handle);
}

// The memory of a tensor through another layout; autograd does not know of it.
inline Tensor reinterpret(const Tensor &source, const Integers &sizes, const Integers &strides,
                          int64_t offset)
{
    AtenTensorHandle handle;
    check(torch.reinterpret(source.get(), static_cast<int64_t>(sizes.size()), sizes.data(),
                            strides.data(), offset, &handle),
          "seeing memory through another layout");
    return Tensor(handle);
}

inline void copy(const Tensor &target, const Tensor &source)
{
    check(torch.copy(target.get(), source.get(), 0), "copying a tensor");
}

// Values ------------------------------------------------------------------------------------------

class Value {
public:
    Value() = default;
    Value(Tensor tensor) : kind(FUSEWRIGHT_TENSOR), tensor(std::move(tensor)) {}
    Value(int64_t number) : kind(FUSEWRIGHT_INTEGER), integer(number) {}
    Value(double number) : kind(FUSEWRIGHT_REAL), real(number) {}
    Value(bool truth) : kind(FUSEWRIGHT_BOOLEAN), integer(truth) {}

    int64_t kind = FUSEWRIGHT_NONE;
    Tensor tensor;
    int64_t integer = 0;
    double real = 0;
};

class Values : public std::vector<Value> {
public:
    using std::vector<Value>::vector;

    // Taken out, so that its memory can go with its last use.
    Tensor tensor(size_t place) { return std::move(at(place).tensor); }
    int64_t integer(size_t place) const { return at(place).integer; }
    double real(size_t place) const
    {
        return at(place).kind == FUSEWRIGHT_REAL ? at(place).real
                                                 : static_cast<double>(at(place).integer);
    }
};

// Numbers -----------------------------------------------------------------------------------------

inline int64_t floor_divide(int64_t left, int64_t right)
{
    if (right == 0) {
        throw Failure(FUSEWRIGHT_FAILED, "a size is divided by zero");
    }
    int64_t rest = left % right;
    return left / right - (rest != 0 && (rest < 0) != (right < 0));
}

inline int64_t remainder(int64_t left, int64_t right)
{
    return left - right * floor_divide(left, right);
}

inline int64_t least(int64_t left, int64_t right) { return std::min(left, right); }

inline int64_t greatest(int64_t left, int64_t right) { return std::max(left, right); }

// The bits of a real number, as kernels take it.
inline int64_t bits(double number)
{
    int64_t word;
    std::memcpy(&word, &number, sizeof word);
    return word;
}

inline void check_fact(bool holds, const char *message)
{
    if (!holds) {
        throw Failure(FUSEWRIGHT_FAILED, message);
    }
}

// Calls of torch's operators ----------------------------------------------------------------------

// An argument, in the form in which torch's dispatcher takes it. One that may be absent in the
// operator's declaration is `some` argument, or `none()`.
struct Argument {
    uint64_t word;
};

inline Argument none() { return {0}; }

inline Argument given(const Tensor &tensor)
{
    return {reinterpret_cast<uint64_t>(new_reference(tensor.get()))};
}

inline Argument integer(int64_t number) { return {static_cast<uint64_t>(number)}; }

inline Argument boolean(bool truth) { return {truth}; }

inline Argument real(double number) { return {static_cast<uint64_t>(bits(number))}; }

inline Argument dtype(Dtype dtype) { return {static_cast<uint64_t>(dtype)}; }

// The CPU; how torch lays out plain tensors.
inline Argument on_cpu() { return {0xffffffffu}; }

inline Argument strided() { return {0}; }

inline Argument list_of(const std::vector<Argument> &items)
{
    void *list = nullptr;
    check(torch.new_list(items.size(), &list), "a list of arguments");
    for (Argument item : items) {
        check(torch.list_push(list, item.word), "a list of arguments");
    }
    return {reinterpret_cast<uint64_t>(list)};
}

inline Argument integers(const Integers &numbers)
{
    std::vector<Argument> items;
    for (int64_t number : numbers) {
        items.push_back(integer(number));
    }
    return list_of(items);
}

inline Argument some(Argument argument)
{
    return {package_torch_optional(argument.word)};
}

// Call an operator with all arguments of its declaration; it returns so many tensors.
inline std::vector<Tensor> call(const char *name, const char *overload, size_t results,
                                std::vector<Argument> arguments)
{
    std::vector<uint64_t> stack(std::max(results, arguments.size()) + 1);
    for (size_t i = 0; i < arguments.size(); i++) {
        stack[i] = arguments[i].word;
    }
    check(package_torch_dispatch(name, overload, stack.data()), name);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < results; i++) {
        tensors.emplace_back(reinterpret_cast<AtenTensorHandle>(stack[i]));
    }
    return tensors;
}

// The same of an operator with one result.
inline Tensor call_one(const char *name, const char *overload, std::vector<Argument> arguments)
{
    return std::move(call(name, overload, 1, std::move(arguments))[0]);
}

// A product and a bias into memory that is there: its factors are numbers of either type, which the
// dispatcher does not take.
inline void addmm(const Tensor &out, const Tensor &bias, const Tensor &left, const Tensor &right)
{
    check(torch.addmm_out(out.get(), bias.get(), left.get(), right.get(), 1, 1), "aten::addmm");
}

// The memory of a tensor through another layout, as a view that autograd knows of.
inline Tensor view(const Tensor &source, const Integers &sizes, const Integers &strides,
                   int64_t offset)
{
    return call_one("aten::as_strided", "",
                    {given(source), integers(sizes), integers(strides),
                     some(integer(source.offset() + offset))});
}

// Whether the elements lie as these strides say: one alone in its dimension may have any stride.
inline bool has_strides(const Tensor &tensor, const Integers &sizes, const Integers &strides)
{
    Integers own = tensor.strides();
    bool is_same = true, is_empty = false;
    for (size_t i = 0; i < own.size(); i++) {
        is_same = is_same && (sizes[i] == 1 || own[i] == strides[i]);
        is_empty = is_empty || sizes[i] == 0;
    }
    return is_same || is_empty;
}

// The result of a library call, laid out as was compiled for: itself, or a copy.
inline Tensor with_layout(Tensor tensor, const Integers &sizes, const Integers &strides,
                          Dtype dtype, bool may_copy)
{
    if (tensor.dtype() != dtype || tensor.sizes() != sizes) {
        throw Failure(FUSEWRIGHT_FAILED,
                      "a library call returned another tensor than was compiled for");
    }
    if (has_strides(tensor, sizes, strides)) {
        return tensor;
    }
    if (!may_copy) {
        throw Failure(FUSEWRIGHT_LAYOUT,
                      "a library call laid its result out otherwise than was compiled for");
    }
    Tensor planned = empty(sizes, strides, dtype);
    copy(planned, tensor);
    return planned;
}

// Kernels -----------------------------------------------------------------------------------------

using Kernel = int64_t(void **arguments, int64_t begin, int64_t end);

inline void launch(const char *name, Kernel *kernel, std::vector<const Tensor *> tensors,
                   std::vector<int64_t> sizes, int64_t units, int64_t grain)
{
    std::vector<void *> arguments;
    for (const Tensor *tensor : tensors) {
        arguments.push_back(tensor->data());
    }
    for (int64_t size : sizes) {
        arguments.push_back(reinterpret_cast<void *>(size));
    }
    switch (kernel_launch(kernel, arguments.data(), units, grain)) {
    case 0:
        return;
    case INDEX_OUT_OF_RANGE:
        throw Failure(FUSEWRIGHT_INDEX,
                      std::string("index out of range in compiled kernel ") + name);
    default:
        throw Failure(FUSEWRIGHT_FAILED,
                      std::string("ZeroDivisionError in compiled kernel ") + name);
    }
}

// Conditions and loops of data --------------------------------------------------------------------

using Block = Values(Values inputs, const Values &constants);

// The one element of a tensor, as a number.
inline double item_of(const Tensor &tensor)
{
    Tensor number = empty({}, {}, float64_type);
    copy(number, tensor);
    return *static_cast<double *>(number.data());
}

inline int64_t integer_in(const Tensor &tensor)
{
    Tensor number = empty({}, {}, int64_type);
    copy(number, tensor);
    return *static_cast<int64_t *>(number.data());
}

inline bool truth(const Tensor &tensor)
{
    return item_of(tensor) != 0;
}

inline Values joined(const Values &first, const Values &second)
{
    Values all(first);
    all.insert(all.end(), second.begin(), second.end());
    return all;
}

// What a loop ends with: tensors that share no memory with one another or with its arguments.
inline Values ended(Values carried, bool has_run)
{
    std::vector<void *> places;
    for (const Value &value : carried) {
        places.push_back(value.tensor.data());
    }
    std::sort(places.begin(), places.end());
    if (has_run && std::adjacent_find(places.begin(), places.end()) == places.end()) {
        return carried;
    }
    for (Value &value : carried) {
        value.tensor = call_one("aten::clone", "", {given(value.tensor), none()});
    }
    return carried;
}

inline Values while_loop(Block *condition, Block *body, const Values &constants, Values arguments,
                         size_t count)
{
    auto border = arguments.begin() + static_cast<std::ptrdiff_t>(count);
    Values carried(arguments.begin(), border), others(border, arguments.end());
    bool has_run = false;
    for (; truth(condition(joined(carried, others), constants).tensor(0)); has_run = true) {
        carried = body(joined(carried, others), constants);
        carried.resize(count);
    }
    return ended(std::move(carried), has_run);
}

// Runs `body` for each slice of the `sliced` arguments behind the `count` that are carried; stacks
// what stands at `stacked`: values that a step is given, and behind these its results.
inline Values scan(Block *body, const Values &constants, Values arguments, size_t count,
                   size_t sliced, const std::vector<size_t> &stacked, bool is_reversed)
{
    auto first = arguments.begin() + static_cast<std::ptrdiff_t>(count);
    auto border = first + static_cast<std::ptrdiff_t>(sliced);
    Values carried(arguments.begin(), first), others(border, arguments.end());
    std::vector<std::vector<Tensor>> stacks(stacked.size());
    int64_t steps = sliced > 0 ? first->tensor.size(0) : 0;
    for (int64_t step = 0; step < steps; step++) {
        int64_t place = is_reversed ? steps - 1 - step : step;
        Values slices;
        for (auto stack = first; stack != border; ++stack) {
            slices.push_back(call_one("aten::select", "int",
                                      {given(stack->tensor), integer(0), integer(place)}));
        }
        Values results = body(joined(joined(carried, slices), others), constants);
        for (size_t i = 0; i < stacked.size(); i++) {
            bool is_carried = stacked[i] < count;
            stacks[i].push_back(
                (is_carried ? carried.at(stacked[i]) : results.at(stacked[i] - count)).tensor);
        }
        carried = std::move(results);
        carried.resize(count);
    }
    Values all = ended(std::move(carried), steps > 0);
    for (std::vector<Tensor> &stack : stacks) {
        if (is_reversed) {
            std::reverse(stack.begin(), stack.end());
        }
        std::vector<Argument> items;
        for (const Tensor &tensor : stack) {
            items.push_back(given(tensor));
        }
        all.push_back(call_one("aten::stack", "", {list_of(items), integer(0)}));
    }
    return all;
}

// The exported function ---------------------------------------------------------------------------

// `first_constant`: the place of the first constant among the inputs, which are the last of them.
inline int run_module(Block *module, size_t first_constant, const FusewrightValue *inputs,
                      size_t input_count, FusewrightValue *outputs,
                      size_t output_count, char *message, size_t room)
{
    auto fail = [=](FusewrightError code, const char *text) {
        if (room > 0) {
            std::strncpy(message, text, room - 1);
            message[room - 1] = 0;
        }
        return static_cast<int>(code);
    };
    try {
        const char *missing = package_torch_find();
        if (missing != nullptr) {
            throw Failure(FUSEWRIGHT_FAILED, std::string("this process has no ") + missing);
        }
        Values given, constants, returned;
        for (size_t i = 0; i < input_count; i++) {
            Value value;
            value.kind = inputs[i].kind;
            value.integer = inputs[i].integer;
            value.real = inputs[i].real;
            if (value.kind == FUSEWRIGHT_TENSOR) {
                value.tensor = Tensor(new_reference(inputs[i].tensor));
            }
            (i < first_constant ? given : constants).push_back(std::move(value));
        }
        returned = module(std::move(given), constants);
        if (returned.size() != output_count) {
            throw Failure(FUSEWRIGHT_FAILED, "the module returns another number of values");
        }
        for (size_t i = 0; i < output_count; i++) {
            Value &value = returned[i];
            outputs[i] = {value.kind, value.tensor.release(), value.integer, value.real};
        }
        return FUSEWRIGHT_DONE;
    } catch (const Failure &failure) {
        return fail(failure.code, failure.what());
    } catch (const std::exception &failure) {
        return fail(FUSEWRIGHT_FAILED, failure.what());
    }
}

}  // namespace fusewright

#endif
