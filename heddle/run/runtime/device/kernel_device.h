// KernelDevice: compiles and caches kernels for one GPU, and launches them on libtorch's stream.
#pragma once

#include <string>
#include <vector>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "heddle/run/cuda/cubin_cache.h"
#include "heddle/run/cuda/module.h"

namespace heddle::run {

// Returns the text of a kernel for NVRTC: `adamw`, `casts`, `fill`, `index_add`, `loss`,
// `norm_weight` or `squared_norm`.
std::string KernelText(std::string_view name);
// Returns the text of a generated kernel (heddle/core/kernel/program.h), with the functions it
// calls.
std::string ProgramText(std::string_view text);

// Throws the error of a status: steps report errors as ATen does.
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

  // Returns the functions `names` of a text, each with up to `shared_bytes` of dynamic shared
  // memory.
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
  // Tells GPUs of different speed apart: architecture, multiprocessors and memory.
  std::string Description() const;
  // Maximum shared memory of a block.
  int most_shared() const { return Attribute(97); }
  int multiprocessors() const { return Attribute(16); }
  // Size of the L2 cache.
  int cache_bytes() const { return Attribute(38); }

 private:
  // Returns a CUdevice_attribute; 0 if the driver lacks it.
  int Attribute(int number) const;

  const CudaDriver& driver_;
  const Nvrtc& nvrtc_;
  CubinCache cache_{FileCache::DefaultFolder()};
  std::string architecture_;
  c10::Device device_;
  const c10::impl::DeviceGuardImplInterface& streams_;
  std::vector<CudaModule> modules_;
};

}  // namespace heddle::run
