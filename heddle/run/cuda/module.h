// CudaModule: machine code on the current device. CudaKernel: one of its functions.
#pragma once

#include <memory>
#include <span>

#include "heddle/run/cuda/driver.h"

namespace heddle::run {

class CudaKernel {
 public:
  struct Shape {
    unsigned grid = 1;
    unsigned block = 1;
    // Dynamic shared memory.
    unsigned shared_bytes = 0;
  };

  // `arguments` point to the values, in the order of the kernel's parameters.
  Status Launch(CudaStreamHandle* stream, const Shape& shape, std::span<void*> arguments) const;
  CudaFunctionHandle* function() const { return function_; }

 private:
  friend class CudaModule;
  CudaKernel(const CudaDriver& driver, CudaFunctionHandle* function, std::string name)
      : driver_(&driver), function_(function), name_(std::move(name)) {}

  const CudaDriver* driver_;
  CudaFunctionHandle* function_;
  std::string name_;
};

class CudaModule {
 public:
  static Result<CudaModule> Load(const CudaDriver& driver, const std::string& cubin);
  // Returns a function by its name, with up to `shared_bytes` of dynamic shared memory. Valid while
  // the module exists.
  Result<CudaKernel> Kernel(const std::string& name, int shared_bytes = 0) const;

 private:
  struct Unload {
    const CudaDriver* driver;
    void operator()(CudaModuleHandle* module) const { driver->module_unload(module); }
  };
  CudaModule(const CudaDriver& driver, CudaModuleHandle* module)
      : module_(module, Unload{&driver}) {}

  std::unique_ptr<CudaModuleHandle, Unload> module_;
};

}  // namespace heddle::run
