#include "heddle/run/cuda/driver.h"

#include <dlfcn.h>

namespace heddle::run {
namespace {

// CUdevice_attribute.
constexpr int kMajor = 75;
constexpr int kMinor = 76;

class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void Find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

Result<CudaDriver> LoadDriver() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr)
    return Error(Diag::kEnvironment,
                 "no GPU: the driver of NVIDIA (libcuda.so.1) is not installed");
  CudaDriver d;
  Symbols symbols(library);
  symbols.Find(d.init, "cuInit");
  symbols.Find(d.driver_version, "cuDriverGetVersion");
  symbols.Find(d.device_count, "cuDeviceGetCount");
  symbols.Find(d.device_attribute, "cuDeviceGetAttribute");
  symbols.Find(d.error_name, "cuGetErrorName");
  symbols.Find(d.stream_begin_capture, "cuStreamBeginCapture_v2");
  symbols.Find(d.stream_end_capture, "cuStreamEndCapture");
  symbols.Find(d.graph_instantiate, "cuGraphInstantiateWithFlags");
  symbols.Find(d.graph_nodes, "cuGraphGetNodes");
  symbols.Find(d.graph_node_type, "cuGraphNodeGetType");
  symbols.Find(d.graph_memset, "cuGraphMemsetNodeGetParams");
  symbols.Find(d.graph_before, "cuGraphNodeGetDependencies");
  symbols.Find(d.graph_after, "cuGraphNodeGetDependentNodes");
  symbols.Find(d.graph_add_kernel, "cuGraphAddKernelNode");
  symbols.Find(d.graph_add_edges, "cuGraphAddDependencies");
  symbols.Find(d.graph_remove, "cuGraphDestroyNode");
  symbols.Find(d.graph_launch, "cuGraphLaunch");
  symbols.Find(d.graph_exec_destroy, "cuGraphExecDestroy");
  symbols.Find(d.graph_destroy, "cuGraphDestroy");
  symbols.Find(d.module_load, "cuModuleLoadData");
  symbols.Find(d.module_unload, "cuModuleUnload");
  symbols.Find(d.module_function, "cuModuleGetFunction");
  symbols.Find(d.function_set, "cuFuncSetAttribute");
  symbols.Find(d.launch, "cuLaunchKernel");
  if (!symbols.missing().empty())
    return Error(Diag::kEnvironment, "the driver of this GPU is too old: libcuda.so.1 has no {}",
                 symbols.missing());
  HEDDLE_RETURN_IF_ERROR(d.Check(d.init(0), "no GPU: cuInit"));
  int devices = 0;
  HEDDLE_RETURN_IF_ERROR(d.Check(d.device_count(&devices), "cuDeviceGetCount"));
  if (devices == 0) return Error(Diag::kEnvironment, "no GPU: the driver finds none");
  return d;
}

}  // namespace

Result<const CudaDriver*> CudaDriver::Open() {
  static const Result<CudaDriver> driver = LoadDriver();
  if (!driver.ok()) return Failure{driver.diagnostics()};
  return &*driver;
}

Result<std::string> CudaDriver::Architecture(int device) const {
  int major = 0;
  int minor = 0;
  HEDDLE_RETURN_IF_ERROR(Check(device_attribute(&major, kMajor, device), "cuDeviceGetAttribute"));
  HEDDLE_RETURN_IF_ERROR(Check(device_attribute(&minor, kMinor, device), "cuDeviceGetAttribute"));
  // From Hopper on, architecture-specific instructions need the `a` form.
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

Status CudaDriver::Check(CudaResult result, std::string_view call) const {
  if (result == 0) return Done{};
  const char* name = nullptr;
  if (error_name(result, &name) != 0 || name == nullptr) name = "an unknown error";
  return Error(Diag::kEnvironment, "{}: {} ({})", call, name, result);
}

}  // namespace heddle::run
