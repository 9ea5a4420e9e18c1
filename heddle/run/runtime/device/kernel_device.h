// KernelDevice: compiles kernels for one GPU, keeps them, and launches on libtorch's stream.
#pragma once

#include <string>
#include <vector>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "heddle/run/cuda/cubin_cache.h"
#include "heddle/run/cuda/module.h"

namespace heddle::run {

// The text of a kernel, as NVRTC gets it: `adamw`, `casts`, `fill`, `loss`,
// `norm_weight` or `squared_norm`.
std::string KernelText(std::string_view name);
// The text of a generated kernel (heddle/core/kernel/program.h), with the functions it calls.
std::string ProgramText(std::string_view text);

// Steps throw what goes wrong, as ATen does.
void ThrowIfFailed(const Status& status);

class KernelDevice {
 public:
  KernelDevice(const CudaDriver& driver, const Nvrtc& nvrtc, std::string architecture,
               c10::Device device)
      : driver_(driver),
        nvrtc_(nvrtc),
        architecture_(std::move(architecture)),
        device_(device),
        streams_(*c10::impl::getDeviceGuardImpl(device.type())) {}

  // The functions `names` of a text, each with up to `shared_bytes` of dynamic shared memory.
  Result<std::vector<CudaKernel>> Compile(const std::string& text,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::string>& defines = {},
                                          int shared_bytes = 0);

  CudaStreamHandle* stream() const {
    return static_cast<CudaStreamHandle*>(
        streams_.getStreamNativeHandle(streams_.getStream(device_)));
  }
  c10::Device device() const { return device_; }
  const std::string& architecture() const { return architecture_; }
  // Shared memory that a block can have.
  int most_shared() const { return Attribute(97); }
  int multiprocessors() const { return Attribute(16); }
  // Size of the L2 cache.
  int cache_bytes() const { return Attribute(38); }

 private:
  // A CUdevice_attribute; 0 if the driver does not know it.
  int Attribute(int number) const;

  const CudaDriver& driver_;
  const Nvrtc& nvrtc_;
  CubinCache cache_{CubinCache::DefaultFolder()};
  std::string architecture_;
  c10::Device device_;
  const c10::impl::DeviceGuardImplInterface& streams_;
  std::vector<CudaModule> modules_;
};

}  // namespace heddle::run
