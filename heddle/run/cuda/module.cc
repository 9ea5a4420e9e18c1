#include "heddle/run/cuda/module.h"

namespace heddle::run {
namespace {

// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, which kernels with more than 48 KiB must set.
constexpr int kMostShared = 8;
constexpr int kSharedForAll = 48 << 10;

}  // namespace

Status CudaKernel::Launch(CudaStreamHandle* stream, const Shape& shape,
                          std::span<void*> arguments) const {
  CudaResult result = driver_->launch(function_, shape.grid, 1, 1, shape.block, 1, 1,
                                      shape.shared_bytes, stream, arguments.data(), nullptr);
  // Formats no text for a successful launch.
  return result == 0 ? Status(Done{}) : driver_->Check(result, "cuLaunchKernel of " + name_);
}

Result<CudaModule> CudaModule::Load(const CudaDriver& driver, const std::string& cubin) {
  CudaModuleHandle* module = nullptr;
  HEDDLE_RETURN_IF_ERROR(
      driver.Check(driver.module_load(&module, cubin.data()), "cuModuleLoadData"));
  return CudaModule(driver, module);
}

Result<CudaKernel> CudaModule::Kernel(const std::string& name, int shared_bytes) const {
  const CudaDriver& driver = *module_.get_deleter().driver;
  CudaFunctionHandle* function = nullptr;
  HEDDLE_RETURN_IF_ERROR(driver.Check(
      driver.module_function(&function, module_.get(), name.c_str()), "cuModuleGetFunction"));
  if (shared_bytes > kSharedForAll)
    HEDDLE_RETURN_IF_ERROR(driver.Check(driver.function_set(function, kMostShared, shared_bytes),
                                        "cuFuncSetAttribute"));
  return CudaKernel(driver, function, name);
}

}  // namespace heddle::run
