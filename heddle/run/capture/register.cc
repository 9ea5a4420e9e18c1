// Registers the recorder in ATen's dispatcher, under a dispatch key that is otherwise unused.
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

// Traced tensors have no device.
struct TracedGuard final : c10::impl::NoOpDeviceGuardImpl<kTracedDevice> {
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
};

// Whether an op must be registered by name. The fallback serves ops that have kernels for single
// devices only. A kernel that serves all devices would take precedence over the fallback and
// decompose the op below autograd, often with in-place writes. Ops whose only kernel decomposes
// above autograd keep it.
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
  // Never deleted: the registrations end with the library object.
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
