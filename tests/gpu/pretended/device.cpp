/* Two GPUs that there are not, for builds of torch for the CPU: what torch asks before it lets fakes of
   CUDA tensors through its operators and its autograd engine. Preloaded into a process by
   `test_without_a_gpu`; no tensor can be made on them. */
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

const DeviceIndex COUNT = 2;

thread_local DeviceIndex current = 0;

struct PretendedGuard : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
    Device getDevice() const override { return Device(DeviceType::CUDA, current); }
    Device exchangeDevice(Device wanted) const override
    {
        const Device before = getDevice();
        setDevice(wanted);
        return before;
    }
    void setDevice(Device wanted) const override { current = wanted.index(); }
    void uncheckedSetDevice(Device wanted) const noexcept override { current = wanted.index(); }
    DeviceIndex deviceCount() const noexcept override { return COUNT; }
    Stream getStream(Device device) const noexcept override
    {
        return Stream(Stream::DEFAULT, device);
    }
    Stream getDefaultStream(Device device) const override
    {
        return Stream(Stream::DEFAULT, device);
    }
    Stream exchangeStream(Stream stream) const noexcept override { return stream; }
    void record(void **, const Stream &, const DeviceIndex, const c10::EventFlag) const override {}
    void block(void *, const Stream &) const override {}
    bool queryEvent(void *) const override { return true; }
    void destroyEvent(void *, const DeviceIndex) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, PretendedGuard);

/* Which attention a GPU would take: PRETENDED_ATTENTION, torch's number of it; no flash attention
   with a mask, and none but the mathematical with one whose rows are not contiguous. */
int64_t choose_attention(const at::Tensor &, const at::Tensor &, const at::Tensor &,
                         const std::optional<at::Tensor> &mask, double, bool, std::optional<double>,
                         bool)
{
    const int64_t mathematical = 0, flash = 1, efficient = 2;
    const char *chosen = std::getenv("PRETENDED_ATTENTION");
    const int64_t number = chosen == nullptr ? mathematical : std::atoi(chosen);
    if (mask.has_value() && mask->sym_stride(-1) != 1)
        return mathematical;
    return number == flash && mask.has_value() ? efficient : number;
}

struct RegisterAttention {
    RegisterAttention() { at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention); }
} register_attention;

} // namespace

namespace at {

/* Torch looks for hooks of this name. */
struct CUDAHooks : CUDAHooksInterface {
    CUDAHooks(CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool hasCuDNN() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex deviceCount() const override { return COUNT; }
    DeviceIndex getCurrentDevice() const override { return current; }
    DeviceIndex current_device() const override { return current; }
    int getNumGPUs() const override { return COUNT; }
    bool compiledWithCuDNN() const override { return true; }
    bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
    bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
    bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
    bool supportsBFloat16RNNWithCuDNN() const override { return true; }
    long versionCuDNN() const override { return 91002; }
    long versionRuntimeCuDNN() const override { return 91002; }
    long versionCuDNNFrontend() const override { return 11400; }
    long versionCUDART() const override { return 13000; }
    double batchnormMinEpsilonCuDNN() const override { return 1e-5; }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

} // namespace at
