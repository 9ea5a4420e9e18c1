// Puts the recorder into ATen's dispatcher, under a key that nothing else uses.
#include <mutex>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "heddle/run/capture/recorder.h"

namespace heddle::run {
namespace {

void RecordCall(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Recorder* recorder = Recorder::current();
  TORCH_CHECK(recorder != nullptr, "a traced tensor was used outside its capture, by ",
              op.schema().name());
  recorder->Call(op, *stack);
}

// Traced tensors live nowhere.
struct TracedGuard final : c10::impl::NoOpDeviceGuardImpl<kTracedDevice> {
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
};

// Whether an op must be registered. A fallback serves ops that have kernels for devices only; but a kernel that serves all
// devices would be chosen before it, and would take the op apart below autograd, often with in-place writes. Ops whose only
// kernel decomposes above autograd are left to do so.
bool MustRegister(const c10::OperatorHandle& op) {
  bool decomposes = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  if (!decomposes) return true;
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CUDA) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

void RegisterAll() {
  static TracedGuard guard;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kTracedDevice)].store(&guard);
  // Kept for the life of the process: registrations end with the library object.
  static torch::Library* library =
      new torch::Library(torch::Library::IMPL, "aten", kTracedKey, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    std::optional<c10::OperatorHandle> op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !MustRegister(*op)) continue;
    std::string local = name.name.substr(6);
    if (!name.overload_name.empty()) local += "." + name.overload_name;
    library->impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&RecordCall>());
  }
  static torch::Library* fallback =
      new torch::Library(torch::Library::IMPL, "_", kTracedKey, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&RecordCall>());
}

}  // namespace

void RegisterTracing() {
  static std::once_flag once;
  std::call_once(once, RegisterAll);
}

}  // namespace heddle::run
