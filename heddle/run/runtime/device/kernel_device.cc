#include "heddle/run/runtime/device/kernel_device.h"

namespace heddle::run {
namespace {

struct NamedText {
  std::string_view name;
  std::string_view text;
};
constexpr NamedText kTexts[] = {
#include "heddle/run/runtime/device/kernel_texts.inc"
};

std::string TextOf(std::string_view name) {
  for (const NamedText& text : kTexts) {
    if (text.name == name) return std::string(text.text);
  }
  HEDDLE_CHECK(false, "a kernel text is missing");
  return "";
}

}  // namespace

std::string KernelText(std::string_view name) {
  bool vectors =
      name == "casts" || name == "index_add" || name == "norm_weight" || name == "squared_norm";
  return vectors ? ProgramText(TextOf(name)) : TextOf("prelude") + TextOf(name);
}

std::string ProgramText(std::string_view text) {
  return TextOf("prelude") + TextOf("elements") + std::string(text);
}

void ThrowIfFailed(const Status& status) {
  TORCH_CHECK(status.ok(), status.diagnostics()[0].message);
}

Result<std::vector<CudaKernel>> KernelDevice::Compile(const std::string& text,
                                                      const std::vector<std::string>& names,
                                                      const std::vector<std::string>& defines,
                                                      int shared_bytes) {
  CudaSource source{text, architecture_, defines};
  HEDDLE_TRY(std::string cubin, cache_.Get(source, nvrtc_.version(),
                                           [&](const CudaSource& s) { return nvrtc_.Compile(s); }));
  HEDDLE_TRY(CudaModule module, CudaModule::Load(driver_, cubin));
  modules_.push_back(std::move(module));
  std::vector<CudaKernel> kernels;
  for (const std::string& name : names) {
    HEDDLE_TRY(CudaKernel kernel, modules_.back().Kernel(name, shared_bytes));
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

std::string KernelDevice::Description() const {
  // CUdevice_attribute: the clock rates in kHz, and the width of the memory's bus.
  return fmt::format("{} with {} multiprocessors at {} kHz, memory of {} bits at {} kHz",
                     architecture_, multiprocessors(), Attribute(13), Attribute(37), Attribute(36));
}

int KernelDevice::Attribute(int number) const {
  int value = 0;
  driver_.device_attribute(&value, number, device_.index());
  return value;
}

}  // namespace heddle::run
