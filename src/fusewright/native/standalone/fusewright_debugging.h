// The debug printer and the checks of generated C++: what `options={"debug_printer": …}` and its
// like put into a module. Values are shown as Python shows them.
#ifndef FUSEWRIGHT_DEBUGGING_H
#define FUSEWRIGHT_DEBUGGING_H

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "fusewright_module.h"

namespace fusewright {

using Named = std::vector<std::pair<const char *, Value>>;

inline void print_to_output(const char *text)
{
    std::fputs(text, stdout);
    std::fflush(stdout);
}

inline FusewrightHost host = {print_to_output, nullptr};

enum { SHOWN_WHOLE = 64 };  // elements; of larger tensors there are figures

// Text --------------------------------------------------------------------------------------------

// A real number by the fewest digits that give it back, as Python's `repr`.
inline std::string shown(double number)
{
    if (std::isnan(number)) {
        return "nan";
    }
    if (std::isinf(number)) {
        return number < 0 ? "-inf" : "inf";
    }
    char buffer[64];
    auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
    std::string text(buffer, end.ptr);
    size_t mark = text.find('e');
    int exponent = std::stoi(text.substr(mark + 1));
    if (exponent < -4 || exponent >= 16) {
        return text;
    }
    end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
    text.assign(buffer, end.ptr);
    return text.find('.') == std::string::npos ? text + ".0" : text;
}

// The number of a type with so many bits behind the first one that is nearest; `least` is the
// exponent of its least normal one.
inline double nearest(double number, int bits, int least)
{
    int exponent = 0;
    std::frexp(number, &exponent);
    double step = std::ldexp(1.0, std::max(exponent - 1, least) - bits);
    return std::nearbyint(number / step) * step;
}

// An element of a type, by the fewest digits that tell it from its neighbours.
inline std::string shown(double number, int32_t dtype)
{
    if (dtype == float64_type || !std::isfinite(number)) {
        return shown(number);
    }
    int bits = dtype == float16_type ? 10 : dtype == bfloat16_type ? 7 : 23;
    int least = dtype == float16_type ? -14 : -126;
    for (int digits = 1; digits < 17; digits++) {
        char buffer[64];
        std::snprintf(buffer, sizeof buffer, "%.*g", digits, number);
        double shorter = std::strtod(buffer, nullptr);
        if (nearest(shorter, bits, least) == number) {
            return shown(shorter);
        }
    }
    return shown(number);
}

// With six digits, as `:.6g`.
inline std::string rounded(double number)
{
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%.6g", number);
    return buffer;
}

inline std::string indented(const std::string &place)
{
    std::string text;
    for (size_t begin = 0; begin < place.size();) {
        size_t end = std::min(place.find('\n', begin), place.size());
        text += "  " + place.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return text;
}

struct TypeFacts {
    const char *name;
    bool is_real, is_complex;
};

inline TypeFacts facts_of(int32_t dtype)
{
    switch (dtype) {
    case uint8_type: return {"uint8", false, false};
    case int8_type: return {"int8", false, false};
    case int16_type: return {"int16", false, false};
    case int32_type: return {"int32", false, false};
    case int64_type: return {"int64", false, false};
    case float16_type: return {"float16", true, false};
    case float32_type: return {"float32", true, false};
    case float64_type: return {"float64", true, false};
    case complex32_type: return {"complex32", false, true};
    case complex64_type: return {"complex64", false, true};
    case complex128_type: return {"complex128", false, true};
    case bool_type: return {"bool", false, false};
    case bfloat16_type: return {"bfloat16", true, false};
    default: return {"uint64", false, false};
    }
}

// The elements, one behind the other, as double, int64 or pairs of double.
inline Tensor elements(const Tensor &tensor)
{
    TypeFacts facts = facts_of(tensor.dtype());
    Dtype wide = facts.is_complex ? complex128_type : facts.is_real ? float64_type : int64_type;
    Integers sizes = tensor.sizes(), strides(sizes.size());
    int64_t step = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = step;
        step *= std::max<int64_t>(sizes[i], 1);
    }
    Tensor plain = empty(sizes, strides, wide);
    copy(plain, tensor);
    return plain;
}

// Whether `test` holds of a real element, or of either part of a complex one.
template <typename Test>
bool any_part(const TypeFacts &facts, const double *reals, int64_t place, Test test)
{
    if (facts.is_complex) {
        return test(reals[2 * place]) || test(reals[2 * place + 1]);
    }
    return facts.is_real && test(reals[place]);
}

inline bool is_nan(double number) { return std::isnan(number); }

inline bool is_infinite(double number) { return std::isinf(number); }

// One element as Python shows it.
inline std::string shown_element(const Tensor &plain, int32_t dtype, int64_t place)
{
    TypeFacts facts = facts_of(dtype);
    if (facts.is_complex) {
        const double *pair = static_cast<double *>(plain.data()) + 2 * place;
        auto part = [](double number) {
            std::string text = shown(number);
            bool is_whole = text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0;
            return is_whole ? text.substr(0, text.size() - 2) : text;
        };
        std::string imaginary = part(pair[1]);
        std::string sign = imaginary[0] == '-' ? "" : "+";
        if (pair[0] == 0 && !std::signbit(pair[0])) {
            return imaginary + "j";
        }
        return "(" + part(pair[0]) + sign + imaginary + "j)";
    }
    if (facts.is_real) {
        return shown(static_cast<double *>(plain.data())[place], dtype);
    }
    int64_t number = static_cast<int64_t *>(plain.data())[place];
    return dtype == bool_type ? (number != 0 ? "True" : "False") : std::to_string(number);
}

inline std::string shown_list(const Tensor &plain, int32_t dtype, const Integers &sizes,
                              size_t dimension, int64_t &place)
{
    if (dimension == sizes.size()) {
        return shown_element(plain, dtype, place++);
    }
    bool is_row = dimension + 1 == sizes.size();
    std::string between = is_row ? ", " : ",\n     " + std::string(dimension, ' ');
    std::string text = "[";
    for (int64_t i = 0; i < sizes[dimension]; i++) {
        text += (i > 0 ? between : "") + shown_list(plain, dtype, sizes, dimension + 1, place);
    }
    return text + "]";
}

// Figures -----------------------------------------------------------------------------------------

inline std::string figures(const Tensor &plain, int32_t dtype, int64_t count)
{
    TypeFacts facts = facts_of(dtype);
    const double *reals = static_cast<double *>(plain.data());
    const int64_t *whole = static_cast<int64_t *>(plain.data());
    int64_t nans = 0, infinities = 0;
    std::vector<int64_t> finite;
    for (int64_t i = 0; i < count; i++) {
        bool has_nan = any_part(facts, reals, i, is_nan);
        bool has_infinity = any_part(facts, reals, i, is_infinite);
        nans += has_nan;
        infinities += has_infinity;
        if (!has_nan && !has_infinity) {
            finite.push_back(i);
        }
    }
    std::string counts =
        "NaN " + std::to_string(nans) + ", infinite " + std::to_string(infinities);
    if (finite.empty()) {
        return counts + "; no element is finite";
    }
    auto part = [&](int64_t i, int which) {
        return facts.is_complex ? reals[2 * i + which]
               : which == 1     ? 0.0
               : facts.is_real  ? reals[i]
                                : static_cast<double>(whole[i]);
    };
    auto magnitude = [&](int64_t i) {
        return facts.is_complex ? std::hypot(part(i, 0), part(i, 1)) : part(i, 0);
    };
    double number = static_cast<double>(finite.size()), mean[2] = {0, 0}, squares = 0;
    for (int64_t i : finite) {
        mean[0] += part(i, 0) / number;
        mean[1] += part(i, 1) / number;
    }
    int64_t lowest = finite[0], highest = finite[0];
    for (int64_t i : finite) {
        squares += std::pow(part(i, 0) - mean[0], 2) + std::pow(part(i, 1) - mean[1], 2);
        lowest = magnitude(i) < magnitude(lowest) ? i : lowest;
        highest = magnitude(i) > magnitude(highest) ? i : highest;
    }
    double deviation = finite.size() > 1 ? std::sqrt(squares / (number - 1)) : NAN;
    auto bound = [&](int64_t i) {
        return facts.is_real || facts.is_complex ? rounded(magnitude(i))
                                                 : shown_element(plain, dtype, i);
    };
    std::string kind = facts.is_complex ? "magnitude " : "";
    std::string middle = rounded(mean[0]);
    if (facts.is_complex) {
        middle += (mean[1] < 0 ? "" : "+") + rounded(mean[1]) + "j";
    }
    return "mean " + middle + ", minimum " + kind + bound(lowest) + ", maximum " + kind +
           bound(highest) + ", standard deviation " + rounded(deviation) + ", " + counts;
}

// Elements of a small tensor, figures about a large one; a number as it is. Lines behind the first
// are set in.
inline std::string described(const Value &value)
{
    switch (value.kind) {
    case FUSEWRIGHT_INTEGER: return std::to_string(value.integer);
    case FUSEWRIGHT_REAL: return shown(value.real);
    case FUSEWRIGHT_BOOLEAN: return value.integer != 0 ? "True" : "False";
    case FUSEWRIGHT_NONE: return "None";
    default: break;
    }
    Integers sizes = value.tensor.sizes();
    std::string size;
    for (int64_t extent : sizes) {
        size += (size.empty() ? "" : "×") + std::to_string(extent);
    }
    int32_t dtype = value.tensor.dtype();
    TypeFacts facts = facts_of(dtype);
    Tensor plain = elements(value.tensor);
    int64_t count = value.tensor.count(), place = 0;
    std::string head = std::string(facts.name) + ", " + (size.empty() ? "one number" : size) +
                       ", on cpu\n    ";
    if (count <= SHOWN_WHOLE) {
        return head + shown_list(plain, dtype, sizes, 0, place);
    }
    return head + "count " + std::to_string(count) + ", " + figures(plain, dtype, count);
}

// Lines of a module -------------------------------------------------------------------------------

inline void debug_print(const char *heading, const Named &values, const char *place)
{
    std::string text = std::string(heading) + "\n" + indented(place);
    for (const auto &[name, value] : values) {
        text += std::string("  ") + name + ": " + described(value) + "\n";
    }
    host.print(text.c_str());
}

inline void debug_name(const char *kernel, const char *place)
{
    host.print((std::string("launch ") + kernel + "\n" + indented(place)).c_str());
}

inline void debug_save(const char *prefix, const Named &values, const char *folder)
{
    if (host.save == nullptr) {
        throw Failure(FUSEWRIGHT_FAILED, "debug_printer='save' needs a host that keeps files");
    }
    for (const auto &[name, value] : values) {
        if (value.kind == FUSEWRIGHT_TENSOR &&
            host.save(folder, (std::string(prefix) + "_" + name).c_str(),
                      Tensor(value.tensor).release())) {
            throw Failure(FUSEWRIGHT_FAILED, "debug_printer='save' cannot write");
        }
    }
}

// Raise for the first value that holds NaN.
inline void check_nan(const char *what, const Named &values, const char *place)
{
    for (const auto &[name, value] : values) {
        TypeFacts facts = facts_of(value.kind == FUSEWRIGHT_TENSOR ? value.tensor.dtype() : 0);
        if (!facts.is_real && !facts.is_complex) {
            continue;
        }
        Tensor plain = elements(value.tensor);
        const double *reals = static_cast<double *>(plain.data());
        int64_t count = value.tensor.count(), nans = 0, first = 0;
        for (int64_t i = count; i-- > 0;) {
            bool has_nan = any_part(facts, reals, i, is_nan);
            nans += has_nan;
            first = has_nan ? i : first;
        }
        if (nans == 0) {
            continue;
        }
        Integers sizes = value.tensor.sizes();
        std::string position = sizes.size() == 1 ? "," : "";
        for (size_t i = sizes.size(); i-- > 0;) {
            position = std::to_string(first % sizes[i]) + position;
            position = (i > 0 ? ", " : "") + position;
            first /= sizes[i];
        }
        std::string text = std::string(what) + " " + name + " with NaN: " + std::to_string(nans) +
                           " of " + std::to_string(count) + " elements, first (" + position +
                           ")\n" + indented(place);
        text.pop_back();
        throw Failure(FUSEWRIGHT_NAN, text);
    }
}

// Raise for an input that is laid out otherwise than was compiled for.
inline void assert_layout(const Tensor &tensor, const Integers &sizes, const Integers &strides,
                          Dtype dtype, const char *name)
{
    if (tensor.dtype() != dtype || tensor.sizes() != sizes ||
        !has_strides(tensor, sizes, strides)) {
        throw Failure(FUSEWRIGHT_LAYOUT, std::string("input ") + name +
                                             " has another type, size or stride than the graph was "
                                             "compiled for");
    }
}

}  // namespace fusewright

#endif
