// The device "ember": its allocator with a memory counter, and copies from and to it.
// Its memory is the host's, so that the example runs everywhere; nothing else relies on that.

#include "EmberKernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace ember {
namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

const c10::Device kDevice(c10::kPrivateUse1, 0);

// Each block begins with its size; the data stand behind it, aligned to a cache line.
constexpr size_t kHeader = 64;

void release(void* block) {
  if (block == nullptr) return;
  size_t bytes = 0;
  std::memcpy(&bytes, block, sizeof(bytes));
  live_bytes -= static_cast<int64_t>(bytes);
  std::free(block);
}

struct EmberAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, kDevice};
    void* block = std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader);
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "ember: no room for ", bytes, " bytes");
    std::memcpy(block, &bytes, sizeof(bytes));
    const int64_t live = live_bytes += static_cast<int64_t>(bytes);
    int64_t peak = peak_bytes;
    while (peak < live && !peak_bytes.compare_exchange_weak(peak, live)) {
    }
    return {static_cast<char*>(block) + kHeader, block, &release, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
};

EmberAllocator allocator;
REGISTER_ALLOCATOR(c10::kPrivateUse1, &allocator);

// One device, one stream, and nothing asynchronous: an event is past as soon as it is recorded.
struct EmberGuard final : c10::impl::NoOpDeviceGuardImpl<c10::kPrivateUse1> {
  c10::Device getDevice() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = nullptr;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }

 private:
  static c10::Stream stream() noexcept { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, EmberGuard);

struct EmberHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
};

EmberHooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// What a direct memory access engine would do: move elements, whatever their strides.
at::Tensor as_host(const at::Tensor& tensor) {
  const at::Tensor host = at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                                        tensor.options().device(at::kCPU));
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

int64_t memory_allocated() { return live_bytes; }
int64_t max_memory_allocated() { return peak_bytes; }

}  // namespace

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format) {
  (void)layout, (void)device;
  TORCH_CHECK(!pin_memory.value_or(false), "ember: only memory of the CPU can be pinned");
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(dtype), memory_format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  (void)layout, (void)device;
  TORCH_CHECK(!pin_memory.value_or(false), "ember: only memory of the CPU can be pinned");
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, c10::dtype_or_default(dtype));
}

at::Tensor _copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::assert_no_internal_overlap(dst);
  at::assert_no_partial_overlap(dst, self);  // as host tensors, the two would not share a storage
  const at::Tensor source = self.is_cpu() ? self : as_host(self);
  const at::Tensor destination = dst.is_cpu() ? dst : as_host(dst);
  destination.copy_(source, non_blocking);
  return dst;
}

}  // namespace ember

TORCH_LIBRARY_FRAGMENT(ember, m) {
  m.def("memory_allocated() -> int", TORCH_FN(ember::memory_allocated));
  m.def("max_memory_allocated() -> int", TORCH_FN(ember::max_memory_allocated));
}
