// The computations of the device "ember": plain loops over contiguous float32 tensors.
// Kernels are functional, each with one thing to say; variants are generated.

#include "EmberKernels.h"
#include "OpgenSupport.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ember {
namespace {

const at::TensorOptions kFloats = at::TensorOptions(at::kFloat).device(c10::kPrivateUse1);

// The tensor as contiguous float32 on the device, with these sizes; a number becomes a constant.
at::Tensor prepared(const at::Tensor& tensor, at::IntArrayRef sizes) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.scalar_type() == at::kFloat || tensor.is_cpu(),
                              "ember computes in float32, not in ", tensor.scalar_type());
  return tensor.to(kFloats).expand(sizes).contiguous();
}

at::Tensor prepared(const at::Tensor& tensor) { return prepared(tensor, tensor.sizes()); }

const float* data(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }

// Whether a computation on these is in float32; the others are left to the CPU.
bool in_float(const at::Tensor& first, const at::Tensor& second) {
  return at::result_type(first, second) == at::kFloat &&
         (first.scalar_type() == at::kFloat || first.is_cpu()) &&
         (second.scalar_type() == at::kFloat || second.is_cpu());
}

std::vector<int64_t> broadcast(at::IntArrayRef first, at::IntArrayRef second) {
  if (first.size() < second.size()) std::swap(first, second);
  std::vector<int64_t> sizes = first.vec();
  for (size_t i = 0; i < second.size(); ++i) {
    int64_t& size = sizes[sizes.size() - second.size() + i];
    TORCH_CHECK(size == second[i] || size == 1 || second[i] == 1, "The size of tensor a (", size,
                ") must match the size of tensor b (", second[i], ") at non-singleton dimension ",
                sizes.size() - second.size() + i);
    if (size == 1) size = second[i];
  }
  return sizes;
}

template <class Function>
void map(const at::Tensor& first, const at::Tensor& second, const at::Tensor& out, Function function) {
  const at::Tensor a = prepared(first, out.sizes());
  const at::Tensor b = prepared(second, out.sizes());
  const at::Tensor result = out.is_contiguous() ? out : at::empty(out.sizes(), kFloats);
  float* to = result.mutable_data_ptr<float>();
  std::transform(data(a), data(a) + a.numel(), data(b), to, function);
  if (!result.is_same(out)) out.copy_(result);
}

template <class Function>
at::Tensor mapped(const at::Tensor& first, const at::Tensor& second, Function function) {
  at::Tensor out = at::empty(broadcast(first.sizes(), second.sizes()), kFloats);
  map(first, second, out, function);
  return out;
}

// out[rows, columns] = a[rows, inner] b[inner, columns], all contiguous.
void multiply(const float* a, const float* b, float* out, int64_t rows, int64_t inner, int64_t columns) {
  std::fill(out, out + rows * columns, 0.0F);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t column = 0; column < columns; ++column)
        out[row * columns + column] += a[row * inner + k] * b[k * columns + column];
}

}  // namespace

at::Tensor add_Tensor(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (!in_float(self, other)) return opgen::OnCpu<at::_ops::add_Tensor>::call(self, other, alpha);
  const float scale = alpha.to<float>();
  return mapped(self, other, [scale](float a, float b) { return a + scale * b; });
}

at::Tensor mul_Tensor(const at::Tensor& self, const at::Tensor& other) {
  if (!in_float(self, other)) return opgen::OnCpu<at::_ops::mul_Tensor>::call(self, other);
  return mapped(self, other, [](float a, float b) { return a * b; });
}

void sub_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
             const at::Tensor& out) {
  if (!in_float(self, other) || out.scalar_type() != at::kFloat) {
    at::Tensor written = out;
    opgen::OnCpu<at::_ops::sub_out>::call(self, other, alpha, written);
    return;
  }
  const float scale = alpha.to<float>();
  map(self, other, out, [scale](float a, float b) { return a - scale * b; });
}

at::Tensor relu(const at::Tensor& self) {
  if (!in_float(self, self)) return opgen::OnCpu<at::_ops::relu>::call(self);
  return mapped(self, self, [](float a, float) { return a < 0.0F ? 0.0F : a; });
}

at::Tensor threshold_backward(const at::Tensor& grad_output, const at::Tensor& self,
                              const at::Scalar& threshold) {
  if (!in_float(grad_output, self))
    return opgen::OnCpu<at::_ops::threshold_backward>::call(grad_output, self, threshold);
  const float limit = threshold.to<float>();
  return mapped(grad_output, self, [limit](float gradient, float a) { return a <= limit ? 0.0F : gradient; });
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) {
  TORCH_CHECK(self.dim() == 2 && mat2.dim() == 2, "mm: both arguments must be matrices");
  TORCH_CHECK(self.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  if (!in_float(self, mat2)) return opgen::OnCpu<at::_ops::mm>::call(self, mat2);
  const at::Tensor a = prepared(self);
  const at::Tensor b = prepared(mat2);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, kFloats);
  multiply(data(a), data(b), out.mutable_data_ptr<float>(), a.size(0), a.size(1), b.size(1));
  return out;
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  if (!in_float(self, mat1)) return opgen::OnCpu<at::_ops::addmm>::call(self, mat1, mat2, beta, alpha);
  const at::Tensor product = mul_Tensor(ember::mm(mat1, mat2), at::scalar_tensor(alpha));
  if (beta.toDouble() == 0.0) return product;  // whatever `self` holds, NaN included
  return add_Tensor(product, self.expand(product.sizes()), beta);
}

at::Tensor sum_dim_IntList(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                           std::optional<at::ScalarType> dtype) {
  if (!in_float(self, self) || dtype.value_or(at::kFloat) != at::kFloat)
    return opgen::OnCpu<at::_ops::sum_dim_IntList>::call(self, dim, keepdim, dtype);
  std::vector<bool> summed(static_cast<size_t>(self.dim()), !dim.has_value() || dim->empty());
  if (dim.has_value() && self.dim() > 0)
    for (const int64_t d : *dim) summed[static_cast<size_t>(at::maybe_wrap_dim(d, self.dim()))] = true;
  std::vector<int64_t> kept = self.sizes().vec(), squeezed;
  for (size_t d = 0; d < kept.size(); ++d)
    if (summed[d]) kept[d] = 1; else squeezed.push_back(kept[d]);
  const at::Tensor a = prepared(self);
  at::Tensor out = at::zeros(kept, kFloats);
  const float* from = data(a);
  float* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < a.numel(); ++i) {
    int64_t rest = i, position = 0;
    for (int64_t d = a.dim() - 1; d >= 0; --d) {
      if (!summed[static_cast<size_t>(d)]) position += rest % a.size(d) * out.stride(d);
      rest /= a.size(d);
    }
    to[position] += from[i];
  }
  return keepdim ? out : out.view(squeezed);
}

// ── Convolution: two-dimensional, one group, written as its definition ───────────────────────

namespace {

struct Window {
  int64_t images, in_channels, height, width, out_channels, rows, columns;
  at::IntArrayRef stride, padding, dilation;

  int64_t extent(int64_t size, int64_t kernel, size_t d) const {
    return (size + 2 * padding[d] - dilation[d] * (kernel - 1) - 1) / stride[d] + 1;
  }
  int64_t out_height() const { return extent(height, rows, 0); }
  int64_t out_width() const { return extent(width, columns, 1); }

  // Call `visit(input, weight, output)` with the offsets of each product in the sum.
  template <class Visit>
  void each_product(Visit visit) const {
    for (int64_t n = 0; n < images; ++n)
      for (int64_t o = 0; o < out_channels; ++o)
        for (int64_t c = 0; c < in_channels; ++c)
          for (int64_t p = 0; p < out_height(); ++p)
            for (int64_t r = 0; r < rows; ++r) {
              const int64_t y = p * stride[0] - padding[0] + r * dilation[0];
              if (y < 0 || y >= height) continue;
              for (int64_t q = 0; q < out_width(); ++q)
                for (int64_t s = 0; s < columns; ++s) {
                  const int64_t x = q * stride[1] - padding[1] + s * dilation[1];
                  if (x < 0 || x >= width) continue;
                  visit(((n * in_channels + c) * height + y) * width + x,
                        ((o * in_channels + c) * rows + r) * columns + s,
                        ((n * out_channels + o) * out_height() + p) * out_width() + q);
                }
            }
  }
};

// Images, not transposed, and in one group; the others are left to the CPU.
bool is_plain(const at::Tensor& input, const at::Tensor& weight, bool transposed, int64_t groups) {
  return input.dim() == 4 && !transposed && groups == 1 && in_float(input, weight);
}

Window window(const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
              at::IntArrayRef padding, at::IntArrayRef dilation) {
  return {input.size(0), input.size(1), input.size(2), input.size(3), weight.size(0),
          weight.size(2), weight.size(3), stride, padding, dilation};
}

}  // namespace

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                    at::IntArrayRef output_padding, int64_t groups) {
  if (!is_plain(input, weight, transposed, groups))
    return opgen::OnCpu<at::_ops::convolution_overrideable>::call(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  const Window w = window(input, weight, stride, padding, dilation);
  const at::Tensor x = prepared(input), k = prepared(weight);
  at::Tensor out = at::zeros({w.images, w.out_channels, w.out_height(), w.out_width()}, kFloats);
  const float *from = data(x), *factor = data(k);
  float* to = out.mutable_data_ptr<float>();
  w.each_product([=](int64_t i, int64_t j, int64_t o) { to[o] += from[i] * factor[j]; });
  if (bias.has_value() && bias->defined())
    return add_Tensor(out, bias->view({1, w.out_channels, 1, 1}), 1);
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> output_mask) {
  if (!is_plain(input, weight, transposed, groups))
    return opgen::OnCpu<at::_ops::convolution_backward_overrideable>::call(
        grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups,
        output_mask);
  const Window w = window(input, weight, stride, padding, dilation);
  const at::Tensor g = prepared(grad_output), x = prepared(input), k = prepared(weight);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) {
    grad_input = at::zeros(x.sizes(), kFloats);
    const float *from = data(g), *factor = data(k);
    float* to = grad_input.mutable_data_ptr<float>();
    w.each_product([=](int64_t i, int64_t j, int64_t o) { to[i] += from[o] * factor[j]; });
  }
  if (output_mask[1]) {
    grad_weight = at::zeros(k.sizes(), kFloats);
    const float *from = data(g), *factor = data(x);
    float* to = grad_weight.mutable_data_ptr<float>();
    w.each_product([=](int64_t i, int64_t j, int64_t o) { to[j] += from[o] * factor[i]; });
  }
  if (output_mask[2]) grad_bias = sum_dim_IntList(g, at::IntArrayRef{0, 2, 3}, false, std::nullopt);
  return {grad_input, grad_weight, grad_bias};
}

// ── Softmax over the last dimension of contiguous rows ────────────────────────────────────────

at::Tensor _log_softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  if (half_to_float || !in_float(self, self))
    return opgen::OnCpu<at::_ops::_log_softmax>::call(self, dim, half_to_float);
  const at::Tensor rows = prepared(self.dim() == 0 ? self.view(1) : self.movedim(dim, -1));
  at::Tensor out = at::empty(rows.sizes(), kFloats);
  const int64_t length = rows.size(-1);
  const float* from = data(rows);
  float* to = out.mutable_data_ptr<float>();
  for (int64_t start = 0; start < rows.numel(); start += length) {
    const float largest = *std::max_element(from + start, from + start + length);
    float sum = 0.0F;
    for (int64_t i = start; i < start + length; ++i) sum += std::exp(from[i] - largest);
    for (int64_t i = start; i < start + length; ++i) to[i] = from[i] - largest - std::log(sum);
  }
  return self.dim() == 0 ? out.view({}) : out.movedim(-1, dim).contiguous();
}

at::Tensor _log_softmax_backward_data(const at::Tensor& grad_output, const at::Tensor& output,
                                      int64_t dim, at::ScalarType input_dtype) {
  if (input_dtype != at::kFloat || !in_float(grad_output, output))
    return opgen::OnCpu<at::_ops::_log_softmax_backward_data>::call(grad_output, output, dim, input_dtype);
  const bool scalar = output.dim() == 0;
  const at::Tensor y = prepared(scalar ? output.view(1) : output.movedim(dim, -1));
  const at::Tensor g = prepared(scalar ? grad_output.view(1) : grad_output.movedim(dim, -1));
  at::Tensor out = at::empty(y.sizes(), kFloats);
  const int64_t length = y.size(-1);
  float* to = out.mutable_data_ptr<float>();
  for (int64_t start = 0; start < y.numel(); start += length) {
    float sum = 0.0F;
    for (int64_t i = start; i < start + length; ++i) sum += data(g)[i];
    for (int64_t i = start; i < start + length; ++i) to[i] = data(g)[i] - std::exp(data(y)[i]) * sum;
  }
  return scalar ? out.view({}) : out.movedim(-1, dim).contiguous();
}

}  // namespace ember
