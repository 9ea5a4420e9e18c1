#include "heddle/run/cuda/nvrtc.h"

#include <dlfcn.h>

namespace heddle::run {
namespace {

void* OpenNvrtc() {
  constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
  // Prefers a loaded library: it belongs to libtorch, whose version determines the bits.
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  // libcaffe2_nvrtc.so belongs to libtorch and loads libtorch's NVRTC.
  if (void* library = dlopen("libcaffe2_nvrtc.so", RTLD_LAZY | RTLD_LOCAL)) return library;
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

Result<Nvrtc> Nvrtc::Load() {
  void* library = OpenNvrtc();
  if (library == nullptr)
    return Error(Diag::kEnvironment,
                 "NVRTC is not installed: neither libnvrtc.so.13 nor libnvrtc.so.12 is found");
  Nvrtc nvrtc;
  std::string missing;
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  Functions& f = nvrtc.f_;
  find(f.version, "nvrtcVersion");
  find(f.create, "nvrtcCreateProgram");
  find(f.compile, "nvrtcCompileProgram");
  find(f.log_size, "nvrtcGetProgramLogSize");
  find(f.log, "nvrtcGetProgramLog");
  find(f.cubin_size, "nvrtcGetCUBINSize");
  find(f.cubin, "nvrtcGetCUBIN");
  find(f.destroy, "nvrtcDestroyProgram");
  find(f.error, "nvrtcGetErrorString");
  if (!missing.empty())
    return Error(Diag::kEnvironment, "this NVRTC is too old: it has no {}", missing);
  int major = 0;
  int minor = 0;
  if (int failed = f.version(&major, &minor))
    return Error(Diag::kEnvironment, "nvrtcVersion: {}", f.error(failed));
  nvrtc.version_ = fmt::format("{}.{}", major, minor);
  return nvrtc;
}

Result<const Nvrtc*> Nvrtc::Open() {
  static const Result<Nvrtc> nvrtc = Load();
  if (!nvrtc.ok()) return Failure{nvrtc.diagnostics()};
  return &*nvrtc;
}

Result<std::string> Nvrtc::Compile(const CudaSource& source, std::string* log) const {
  std::vector<std::string> options = {"--gpu-architecture=" + source.architecture, "--std=c++17",
                                      "--prec-div=true", "--prec-sqrt=true", "--ftz=false"};
  options.insert(options.end(), source.options.begin(), source.options.end());
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  Program* program = nullptr;
  if (int failed = f_.create(&program, source.text.c_str(), "kernel.cu", 0, nullptr, nullptr))
    return Error(Diag::kEnvironment, "nvrtcCreateProgram: {}", f_.error(failed));
  int failed = f_.compile(program, static_cast<int>(texts.size()), texts.data());
  size_t bytes = 0;
  std::string out;
  // Returns the log after a failure, otherwise the machine code.
  if ((failed != 0 ? f_.log_size : f_.cubin_size)(program, &bytes) == 0) {
    out.resize(bytes);
    (failed != 0 ? f_.log : f_.cubin)(program, out.data());
  }
  if (failed == 0 && log != nullptr && f_.log_size(program, &bytes) == 0) {
    log->resize(bytes);
    f_.log(program, log->data());
  }
  f_.destroy(&program);
  if (failed == 0) return out;
  return Error(Diag::kEnvironment, "NVRTC {} does not compile a kernel for {}: {}\n{}", version_,
               source.architecture, f_.error(failed), out.c_str());
}

}  // namespace heddle::run
