// What generated operators of a backend share: checks, geometry, storage, and the CPU fall-back.
// Written by `fusewright opgen` beside the files that include it.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/_thnn_differentiable_gru_cell_backward.h>
#include <ATen/ops/_thnn_differentiable_lstm_cell_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

// Up to torch 2.12, outputs could carry names of dimensions.
#if __has_include(<ATen/core/Dimname.h>)
#define OPGEN_NAMES , at::DimnameList names
#define OPGEN_PASS_NAMES , names
#else
#define OPGEN_NAMES
#define OPGEN_PASS_NAMES
#endif

namespace opgen {

// ── Several tensors at once ───────────────────────────────────────────────────────────────────
// A result is one tensor, a tuple of tensors, or a list of them; so is what it is written to.

template <class Do>
void visit(const at::Tensor& tensor, Do&& apply) {
  if (tensor.defined()) apply(tensor);
}
template <class Do>
void visit(const std::optional<at::Tensor>& tensor, Do&& apply) {
  if (tensor.has_value()) visit(*tensor, apply);
}
template <class Do>
void visit(const at::ITensorListRef& tensors, Do&& apply) {
  for (const at::Tensor& tensor : tensors) visit(tensor, apply);
}
template <class Do>
void visit(at::TensorList tensors, Do&& apply) {
  for (const at::Tensor& tensor : tensors) visit(tensor, apply);
}
template <class Do>
void visit(const c10::List<std::optional<at::Tensor>>& tensors, Do&& apply) {
  for (const std::optional<at::Tensor>& tensor : tensors) visit(tensor, apply);
}
template <class Do, class... Tensors>
void visit(const std::tuple<Tensors...>& tensors, Do&& apply) {
  std::apply([&](const auto&... tensor) { (visit(tensor, apply), ...); }, tensors);
}

template <class Do>
void visit_pairs(const at::Tensor& first, const at::Tensor& second, Do&& apply) {
  apply(first, second);
}
template <class Do>
void visit_pairs(at::TensorList first, at::TensorList second, Do&& apply) {
  TORCH_CHECK(first.size() == second.size(), "expected ", second.size(), " tensors to write to, got ",
              first.size());
  for (size_t i = 0; i < first.size(); ++i) apply(first[i], second[i]);
}
template <class... First, class... Second, class Do>
void visit_pairs(const std::tuple<First...>& first, const std::tuple<Second...>& second, Do&& apply) {
  std::apply([&](const auto&... a) {
    std::apply([&](const auto&... b) { (visit_pairs(a, b, apply), ...); }, second);
  }, first);
}

// The same function of each tensor of a result.
template <class Function>
at::Tensor transform(const at::Tensor& tensor, Function&& function) {
  return tensor.defined() ? function(tensor) : at::Tensor();
}
template <class Function>
std::optional<at::Tensor> transform(const std::optional<at::Tensor>& tensor, Function&& function) {
  return tensor.has_value() ? std::optional(transform(*tensor, function)) : std::nullopt;
}
template <class Function>
std::vector<at::Tensor> transform(at::TensorList tensors, Function&& function) {
  std::vector<at::Tensor> results;
  results.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) results.push_back(transform(tensor, function));
  return results;
}
template <class Function>
c10::List<std::optional<at::Tensor>> transform(
    const c10::List<std::optional<at::Tensor>>& tensors, Function&& function) {
  c10::List<std::optional<at::Tensor>> results;
  for (const std::optional<at::Tensor>& tensor : tensors)
    results.push_back(transform(tensor, function));
  return results;
}
template <class... Tensors, class Function>
auto transform(const std::tuple<Tensors...>& tensors, Function&& function) {
  return std::apply(
      [&](const auto&... tensor) { return std::make_tuple(transform(tensor, function)...); }, tensors);
}

// The same function of each tensor beside its counterpart.
template <class Function>
at::Tensor combine(const at::Tensor& first, const at::Tensor& second, Function&& function) {
  return function(first, second);
}
template <class Function>
std::vector<at::Tensor> combine(at::TensorList first, at::TensorList second, Function&& function) {
  std::vector<at::Tensor> results;
  visit_pairs(first, second, [&](const at::Tensor& a, const at::Tensor& b) {
    results.push_back(function(a, b));
  });
  return results;
}
template <class... First, class... Second, class Function>
auto combine(const std::tuple<First...>& first, const std::tuple<Second...>& second,
             Function&& function) {
  return std::apply([&](const auto&... a) {
    return std::apply([&](const auto&... b) {
      return std::make_tuple(combine(a, b, function)...);
    }, second);
  }, first);
}

// ── Geometry: what torch says of a result, computed on meta tensors ──────────────────────────

inline at::Tensor meta(const at::Tensor& tensor) {
  // A scalar on the CPU stays as it is: it takes part in type promotion in its own way.
  if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return tensor;
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}
template <class Tensors>
auto meta(const Tensors& tensors) {
  return transform(tensors, [](const at::Tensor& tensor) { return meta(tensor); });
}

inline c10::SymInt symbolic(int64_t value) { return value; }
inline c10::SymIntArrayRef symbolic(at::IntArrayRef values) { return c10::fromIntArrayRefSlow(values); }
inline std::optional<c10::SymInt> symbolic(std::optional<int64_t> value) {
  return value.has_value() ? std::optional(c10::SymInt(*value)) : std::nullopt;
}
inline at::OptionalSymIntArrayRef symbolic(at::OptionalIntArrayRef values) {
  if (!values.has_value()) return std::nullopt;
  return at::OptionalSymIntArrayRef(c10::fromIntArrayRefSlow(*values));
}

inline at::OptionalTensorRef borrow(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? at::OptionalTensorRef(*tensor) : at::OptionalTensorRef();
}
inline at::OptionalScalarRef borrow(const std::optional<at::Scalar>& scalar) {
  return scalar.has_value() ? at::OptionalScalarRef(&*scalar) : at::OptionalScalarRef();
}

inline void find_device(std::optional<at::Device>& found, const std::optional<at::Device>& asked) {
  if (!found.has_value()) found = asked;
}
template <class Tensors>
void find_device(std::optional<at::Device>& found, const Tensors& tensors) {
  visit(tensors, [&](const at::Tensor& tensor) {
    if (!found.has_value() && !tensor.is_cpu()) found = tensor.device();
  });
}

// The device on which a result is made: the one asked for, or that of the first argument which is
// not on the CPU.
template <class... Arguments>
at::Device device_of(const Arguments&... arguments) {
  std::optional<at::Device> found;
  (find_device(found, arguments), ...);
  return found.value_or(at::Device(at::kPrivateUse1, 0));
}

template <class Geometry>
auto allocate(const Geometry& geometry, at::Device device) {
  return transform(geometry, [&](const at::Tensor& like) {
    const at::TensorOptions options = like.options().device(device);
    return at::empty_strided(like.sizes(), like.strides(), options);
  });
}

template <class Tensors>
auto clone(const Tensors& tensors) {
  return transform(tensors, [](const at::Tensor& tensor) { return tensor.clone(); });
}

// A copy of `self` with room for the result: its sizes, and a dtype that holds both, so that the
// computation starts from what `self` was and ends in what it becomes; or the result's dtype, for
// operators that convert before they compute.
template <class Selfs, class Geometry>
auto writable_copy(const Selfs& selfs, const Geometry& geometry, bool in_result_dtype) {
  return combine(selfs, geometry, [&](const at::Tensor& self, const at::Tensor& result) {
    const at::ScalarType dtype =
        in_result_dtype ? result.scalar_type()
                        : c10::promoteTypes(self.scalar_type(), result.scalar_type());
    const at::TensorOptions options = self.options().dtype(dtype);
    return at::empty_strided(result.sizes(), result.strides(), options).copy_(self);
  });
}

// The copies in the dtypes of the result.
template <class Copies, class Geometry>
auto converted(const Copies& copies, const Geometry& geometry) {
  return combine(copies, geometry, [](const at::Tensor& copy, const at::Tensor& result) {
    return copy.to(result.scalar_type());
  });
}

// ── Checks before and writing after a computation ─────────────────────────────────────────────

template <class... Tensors>
void check_same_device(const Tensors&... tensors) {
  std::optional<at::Device> common;
  const auto check = [&](const at::Tensor& tensor) {
    c10::impl::check_and_update_common_device(common, tensor, "opgen", "tensor");
  };
  (visit(tensors, check), ...);
}
// As pointwise operators have it: scalars may be on the CPU.
template <class... Tensors>
void check_same_device_or_scalar(const Tensors&... tensors) {
  std::optional<at::Device> common;
  const auto check = [&](const at::Tensor& tensor) {
    if (tensor.is_cpu() && tensor.dim() == 0) return;
    c10::impl::check_and_update_common_device(common, tensor, "opgen", "tensor");
  };
  (visit(tensors, check), ...);
}

// What is written to must not overlap with itself, nor in part with what is read.
template <class Written, class... Inputs>
void check_overlap(const Written& written, const Inputs&... inputs) {
  visit(written, [&](const at::Tensor& output) {
    at::assert_no_internal_overlap(output);
    [[maybe_unused]] const auto check = [&](const at::Tensor& input) {
      at::assert_no_partial_overlap(output, input);
    };
    (visit(inputs, check), ...);
  });
}

// A result is written to a tensor of its dtype, or, if `castable`, of one to which it converts.
inline void check_dtype(const at::Tensor& written, at::ScalarType dtype, bool castable) {
  if (castable) {
    TORCH_CHECK(c10::canCast(dtype, written.scalar_type()), "result type ", dtype,
                " can't be cast to the desired output type ", written.scalar_type());
  } else {
    TORCH_CHECK(dtype == written.scalar_type(), "Expected out tensor to have dtype ",
                c10::scalarTypeToTypeMeta(dtype), ", but got ", written.dtype(), " instead");
  }
}

template <class Selfs, class Results>
void check_self(const Selfs& selfs, const Results& results, bool castable) {
  visit_pairs(selfs, results, [&](const at::Tensor& self, const at::Tensor& result) {
    TORCH_CHECK(self.sizes() == result.sizes(), "output with shape ", self.sizes(),
                " doesn't match the broadcast shape ", result.sizes());
    check_dtype(self, result.scalar_type(), castable);
  });
}

template <class Selfs, class Results>
void copy(const Selfs& selfs, const Results& results) {
  visit_pairs(selfs, results, [](const at::Tensor& self, const at::Tensor& result) {
    if (self.defined() && !self.is_same(result)) at::_copy_from(result, self, /*non_blocking=*/false);
  });
}

template <class Selfs, class Results>
void write_self(const Selfs& selfs, const Results& results, bool castable) {
  check_self(selfs, results, castable);
  opgen::copy(selfs, results);  // not at::copy, which an unqualified name would find
}
// Optional arguments that an operator updates, such as running statistics.
inline void write_self(const std::optional<at::Tensor>& self, const at::Tensor& result, bool castable) {
  if (self.has_value() && self->defined()) write_self(*self, result, castable);
}

template <class Outs, class Results>
void write_out(const Outs& outs, const Results& results, bool castable) {
  visit_pairs(outs, results, [&](const at::Tensor& out, const at::Tensor& result) {
    TORCH_CHECK(out.device() == result.device(), "Expected out tensor to have device ",
                result.device(), ", but got ", out.device(), " instead");
    check_dtype(out, result.scalar_type(), castable);
  });
  visit_pairs(outs, results, [](const at::Tensor& out, const at::Tensor& result) {
    at::native::resize_output(out, result.sizes());
  });
  opgen::copy(outs, results);
}

// ── Structured operators: ATen's meta function checks, and asks for outputs ───────────────────

enum class Writes { New, Self, Out };

// Runs the meta function `Meta` and provides the outputs that it asks for: allocated, `self`
// checked, or `out` resized.
template <class Meta, Writes writes, size_t count>
class Checked final : public Meta {
 public:
  template <class... Outputs>
  explicit Checked(const Outputs&... outputs) : outputs_{outputs...} {}

  // Output `index`, to be written by a kernel.
  at::Tensor& output(size_t index) {
    return proxies_[index].defined() ? proxies_[index] : outputs_[index];
  }

  // Move what a kernel wrote to stand-ins to the outputs that they stand for.
  void finish() {
    for (size_t i = 0; i < count; ++i)
      if (proxies_[i].defined()) outputs_[i].copy_(proxies_[i]);
  }

  const at::Tensor& maybe_get_output(int64_t index) override {
    return output(static_cast<size_t>(index));
  }

  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options OPGEN_NAMES) override {
    at::Tensor& output = outputs_[static_cast<size_t>(index)];
    if constexpr (writes == Writes::New) {
      output = strides.empty() ? at::empty(sizes, options) : at::empty_strided(sizes, strides, options);
    } else {
      check(output, sizes, options);
      if (writes == Writes::Out && at::native::resize_output(output, sizes)) {
        if (!strides.empty()) {
          output.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
        } else if (options.memory_format_opt().has_value()) {
          output.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
        }
      }
    }
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>)
      Meta::set_output_raw_strided(index, sizes, strides, options OPGEN_PASS_NAMES);
  }

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options OPGEN_NAMES) override {
    set_output_raw_strided(index, sizes, strides, options OPGEN_PASS_NAMES);
    const at::Tensor& output = outputs_[static_cast<size_t>(index)];
    if (writes != Writes::New && !strides.empty() && output.strides() != strides)
      proxies_[static_cast<size_t>(index)] = at::empty_strided(sizes, strides, output.options());
  }

 private:
  void check(const at::Tensor& output, at::IntArrayRef sizes, const at::TensorOptions& options) {
    if constexpr (writes == Writes::Out) {
      TORCH_CHECK(options.dtype() == output.dtype(), "Expected out tensor to have dtype ",
                  options.dtype(), ", but got ", output.dtype(), " instead");
      TORCH_CHECK(options.device() == output.device(), "Expected out tensor to have device ",
                  options.device(), ", but got ", output.device(), " instead");
    } else {
      TORCH_CHECK(options.dtype() == output.dtype(), "Bad in-place call: input tensor dtype ",
                  output.dtype(), " and output tensor dtype ", options.dtype(), " should match");
      TORCH_CHECK(options.device() == output.device(), "Bad in-place call: input tensor device ",
                  output.device(), " and output tensor device ", options.device(), " should match");
      TORCH_CHECK(sizes == output.sizes(), "Bad in-place call: input tensor size ", output.sizes(),
                  " and output tensor size ", sizes, " should match");
    }
  }

  std::array<at::Tensor, count> outputs_;
  std::array<at::Tensor, count> proxies_;
};

// ── Storage: the same for every device whose allocator can copy ───────────────────────────────

inline void grow(const c10::Storage& storage, size_t bytes) {
  if (bytes <= storage.nbytes()) return;
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable() && impl->allocator() != nullptr,
              "Trying to resize storage that is not resizable");
  c10::DataPtr fresh = impl->allocator()->allocate(bytes);
  if (storage.nbytes() != 0) impl->allocator()->copy_data(fresh.get(), storage.data(), storage.nbytes());
  impl->set_data_ptr_noswap(std::move(fresh));
  impl->set_nbytes(bytes);
}

inline const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                                 std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    const size_t offset = static_cast<size_t>(self.storage_offset());
    const size_t bytes = at::detail::computeStorageNbytesContiguous(size, self.itemsize(), offset);
    impl->set_sizes_contiguous(size);
    if (self.numel() != 0) grow(self.storage(), bytes);
  }
  if (format.has_value()) impl->empty_tensor_restride(*format);
  return self;
}

inline at::Tensor& set_(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "set_: the storage is on ", source.device(),
              ", the tensor on ", self.device());
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.data() == nullptr) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  const size_t bytes = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                                        static_cast<size_t>(offset));
  if (self.numel() != 0) grow(self.storage(), bytes);
  return self;
}

inline at::Tensor& set_empty(at::Tensor& self) { return self.set_(at::empty({0}, self.options())); }

inline at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return at::_copy_from(self, destination, /*non_blocking=*/false);
}

// ── Falling back to the CPU ───────────────────────────────────────────────────────────────────

enum class FallBack { Quiet, Warn, Error };

struct FallBackRecord {
  std::mutex mutex;
  std::map<std::string, int64_t> counts;
  FallBack mode = FallBack::Warn;
};
inline FallBackRecord& fall_back_record() {
  static FallBackRecord record;
  return record;
}

inline c10::Dict<std::string, int64_t> fallback_counts() {
  FallBackRecord& record = fall_back_record();
  const std::lock_guard<std::mutex> lock(record.mutex);
  c10::Dict<std::string, int64_t> counts;
  for (const auto& [name, count] : record.counts) counts.insert(name, count);
  return counts;
}
inline void reset_fallback_counts() {
  FallBackRecord& record = fall_back_record();
  const std::lock_guard<std::mutex> lock(record.mutex);
  record.counts.clear();
}
inline void set_fallback(c10::string_view mode) {
  const std::map<c10::string_view, FallBack> modes = {
      {"quiet", FallBack::Quiet}, {"warn", FallBack::Warn}, {"error", FallBack::Error}};
  const auto found = modes.find(mode);
  TORCH_CHECK_VALUE(found != modes.end(), "a fall-back is 'quiet', 'warn' or 'error', not '", mode, "'");
  FallBackRecord& record = fall_back_record();
  const std::lock_guard<std::mutex> lock(record.mutex);
  record.mode = found->second;
}

// Count a fall-back, and name the operator when it is its first.
inline void note_fall_back(const std::string& name) {
  FallBackRecord& record = fall_back_record();
  std::unique_lock<std::mutex> lock(record.mutex);
  const FallBack mode = record.mode;
  const bool first = ++record.counts[name] == 1;
  lock.unlock();
  TORCH_CHECK_NOT_IMPLEMENTED(mode != FallBack::Error, name,
                              " has no kernel on this device, and falling back to the CPU is off");
  if (first && mode == FallBack::Warn)
    TORCH_WARN(name, " has no kernel on this device and is computed on the CPU");
}

// A view of `self`'s memory with the geometry of a meta tensor.
inline at::Tensor view_like(const at::Tensor& self, const at::Tensor& geometry) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), geometry.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes(), geometry.strides(),
                                                    geometry.storage_offset());
  return view;
}

// A meta tensor that lies in a storage as `tensor` does in its own.
inline at::Tensor meta_with_storage(const at::Tensor& tensor) {
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  const at::Tensor whole = at::detail::empty_strided_meta({elements}, {1}, tensor.scalar_type());
  return whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

// A view cannot be computed elsewhere: torch computes its geometry, the memory stays.
inline void fall_back_view(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  torch::jit::Stack geometry(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  at::Tensor self;
  for (c10::IValue& value : geometry) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    if (!self.defined()) self = value.toTensor();
    value = meta_with_storage(value.toTensor());
  }
  op.callBoxed(&geometry);
  torch::jit::drop(*stack, count);
  for (const c10::IValue& value : geometry) {
    if (value.isTensorList()) {
      stack->emplace_back(transform(at::TensorList(value.toTensorVector()), [&](const at::Tensor& tensor) {
        return view_like(self, tensor);
      }));
    } else {
      stack->emplace_back(value.isTensor() ? view_like(self, value.toTensor()) : value);
    }
  }
}

// Without these there is no way to or from the CPU.
inline bool is_required(const std::string& name) {
  return name == "aten::empty" || name == "aten::empty_strided" || name == "aten::_copy_from";
}

// The operator that computes the same on the CPU. torch asks a device from outside for convolutions by
// names under which the CPU has none; and only one of two batch norms declares that it writes to the
// running statistics, and so has them moved back.
inline c10::OperatorHandle counterpart(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  const auto arguments = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const auto find = [&](const char* other) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(other, op.schema().overload_name().c_str());
  };
  if (name == "aten::convolution_overrideable") return find("aten::convolution");
  if (name == "aten::convolution_backward_overrideable") {
    const at::Tensor weight = (arguments + 2)->toTensor();
    const bool transposed = (arguments + 6)->toBool();
    const int64_t channels = transposed ? weight.size(1) * (arguments + 8)->toInt() : weight.size(0);
    stack->insert(arguments + 3, c10::IValue(std::vector<int64_t>{channels}));  // the bias's sizes
    return find("aten::convolution_backward");
  }
  if (name == "aten::native_batch_norm" && (arguments + 3)->isTensor())
    return find("aten::_native_batch_norm_legit");
  return op;
}

// What is written to must not overlap in part with what is read: the CPU is given copies of both,
// which never do.
inline void check_apart(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
  const auto tensors = [&](size_t i) -> std::vector<at::Tensor> {
    if (arguments[i].isTensor()) return {arguments[i].toTensor()};
    if (arguments[i].isTensorList()) return arguments[i].toTensorVector();
    return {};
  };
  const auto is_written = [&](size_t i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  };
  for (size_t i = 0; i < arguments.size(); ++i)
    for (size_t j = 0; j < arguments.size(); ++j)
      if (is_written(i) && !is_written(j))
        for (const at::Tensor& output : tensors(i))
          for (const at::Tensor& input : tensors(j))
            if (output.defined() && input.defined()) at::assert_no_partial_overlap(output, input);
}

inline void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(!is_required(op.schema().name()), "the backend must provide ",
                              op.operator_name(), ", on which all others rest");
  bool is_view = false;
  for (const c10::Argument& result : op.schema().returns())
    is_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  if (is_view) return fall_back_view(op, stack);
  note_fall_back(c10::toString(op.operator_name()));
  const c10::OperatorHandle on_cpu = counterpart(op, stack);
  TORCH_CHECK_NOT_IMPLEMENTED(on_cpu.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
                              op.operator_name(), " has no kernel on this device, nor on the CPU");
  check_apart(on_cpu.schema(), torch::jit::last(*stack, on_cpu.schema().arguments().size()));
  at::native::cpu_fallback(on_cpu, stack);
}

// The operator `Op`, such as `at::_ops::mul_Tensor`, on the CPU: for a kernel that is asked for a
// dtype or a form that it does not compute.
template <class Op>
using OnCpu = at::native::call_fallback_fn<&fall_back, Op>;

// ── Cells of recurrent networks ───────────────────────────────────────────────────────────────
// torch asks a device from outside for these, though the CPU has none. They are made of the device's
// other operators; gradients are torch's formulas, from what a cell keeps.

inline at::Tensor biased(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates.add(*bias) : gates;
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor gates = biased(input_gates, input_bias).add(biased(hidden_gates, hidden_bias));
  const std::vector<at::Tensor> parts = gates.chunk(4, 1);  // input, forget, cell, output
  const at::Tensor cy = parts[1].sigmoid().mul(cx).add(parts[0].sigmoid().mul(parts[2].tanh()));
  return {parts[3].sigmoid().mul(cy.tanh()), cy, gates};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& gates, bool has_bias) {
  const auto gradients = at::_thnn_differentiable_lstm_cell_backward(
      grad_hy, grad_cy, gates, gates.new_zeros({}), {}, {}, cx, cy);
  const at::Tensor& grad_gates = std::get<0>(gradients);
  return {grad_gates, std::get<2>(gradients), has_bias ? grad_gates.sum(0) : at::Tensor()};
}

inline std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor from_input = biased(input_gates, input_bias);
  const at::Tensor from_hidden = biased(hidden_gates, hidden_bias);
  const std::vector<at::Tensor> x = from_input.chunk(3, 1), h = from_hidden.chunk(3, 1);
  const at::Tensor reset = x[0].add(h[0]).sigmoid(), update = x[1].add(h[1]).sigmoid();
  const at::Tensor fresh = x[2].add(reset.mul(h[2])).tanh();
  return {fresh.add(update.mul(hx.sub(fresh))), at::cat({from_input, from_hidden, hx}, 1)};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const int64_t size = grad_hy.size(1);
  const std::vector<at::Tensor> parts = workspace.split_with_sizes({3 * size, 3 * size, size}, 1);
  auto gradients = at::_thnn_differentiable_gru_cell_backward(grad_hy, parts[0], parts[1], parts[2], {}, {});
  if (has_bias) {
    std::get<3>(gradients) = std::get<0>(gradients).sum(0);
    std::get<4>(gradients) = std::get<1>(gradients).sum(0);
  }
  return gradients;
}

}  // namespace opgen
