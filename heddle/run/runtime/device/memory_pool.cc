#include "heddle/run/runtime/device/memory_pool.h"

#ifdef HEDDLE_CUDA_HEADERS

#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>

namespace heddle::run {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// libtorch 2.13 must be told about captures; 2.11 detects them.
template <typename Allocator>
void MarkCapture(Allocator* of, c10::DeviceIndex device, bool begins) {
  if constexpr (requires { of->markCaptureBegin(device); }) {
    begins ? of->markCaptureBegin(device) : of->markCaptureEnd(device);
  }
}

class CudaMemoryPool : public MemoryPool {
 public:
  explicit CudaMemoryPool(c10::DeviceIndex device)
      : device_(device), id_(at::cuda::MemPool::graph_pool_handle(/*is_user_created=*/false)) {
    allocator::createOrIncrefPool(device_, id_);
  }
  ~CudaMemoryPool() override { allocator::releasePool(device_, id_); }

  void Begin(void* stream, bool captured) override {
    allocator::beginAllocateToPool(device_, id_, [stream](cudaStream_t s) { return s == stream; });
    if (captured) MarkCapture(allocator::get(), device_, /*begins=*/true);
  }
  void End(bool captured) override {
    if (captured) MarkCapture(allocator::get(), device_, /*begins=*/false);
    allocator::endAllocateToPool(device_, id_);
    // Begin took its own reference.
    allocator::releasePool(device_, id_);
  }

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
};

}  // namespace

Result<std::unique_ptr<MemoryPool>> MemoryPool::Make(c10::Device device) {
  return std::unique_ptr<MemoryPool>(std::make_unique<CudaMemoryPool>(device.index()));
}

}  // namespace heddle::run

#else

namespace heddle::run {

Result<std::unique_ptr<MemoryPool>> MemoryPool::Make(c10::Device) {
  return Error(Diag::kEnvironment,
               "this build of Heddle has no CUDA graphs: CUDA's headers (crt/host_defines.h) were "
               "not found; install the package nvidia-cuda-crt and build again");
}

}  // namespace heddle::run

#endif
