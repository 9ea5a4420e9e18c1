// Runs generated kernels on a CPU: the host's compiler makes a library of each text, through
// host_cuda.h.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "heddle/run/runtime/device/kernel_backend.h"
#include "heddle/run/runtime/device/kernel_device.h"

namespace heddle::run {

inline constexpr const char* kHostCompiler = "c++ -std=c++20 -O1 -ffp-contract=off -w -fPIC";

// A copy of host_cuda.h that is compiled once for all texts.
class HostHeader {
 public:
  static const std::string& Path() {
    static HostHeader header;
    return header.path_;
  }

 private:
  HostHeader() : path_(fmt::format("{}/host_cuda_{}.h", testing::TempDir(), getpid())) {
    namespace fs = std::filesystem;
    fs::copy_file(fs::path(HEDDLE_DEVICE_FOLDER) / "test" / "host_cuda.h", path_,
                  fs::copy_options::overwrite_existing);
    std::string command = fmt::format("{0} -x c++-header -o {1}.gch {1}", kHostCompiler, path_);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  ~HostHeader() {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".gch");
  }

  std::string path_;
};

class HostKernel : public GroupKernel {
 public:
  // A function with its grid and block. Several run one after the other.
  struct Part {
    std::string name;
    unsigned grid = 1;
    unsigned block = 1;
  };

  HostKernel(const std::string& text, const std::vector<Part>& parts) {
    namespace fs = std::filesystem;
    static int count = 0;
    fs::path stem = fs::path(testing::TempDir()) / fmt::format("kernel_{}_{}", getpid(), count++);
    std::string source = stem.string() + ".cc";
    std::string library = stem.string() + ".so";
    std::ofstream out(source);
    out << "#include \"" << HostHeader::Path() << "\"\n"
        << "namespace heddle::run::host_cuda {\n"
        << text << R"(
template <typename... A, size_t... I>
void Call(void (*kernel)(A...), void** a, std::index_sequence<I...>) { kernel((A)a[I]...); }
template <typename... A>
void CallAll(void (*kernel)(A...), void** a) { Call(kernel, a, std::index_sequence_for<A...>()); }
)";
    for (const Part& part : parts)
      out << fmt::format(
          "extern \"C\" void run_{0}(void** a, unsigned step) {{\n"
          "  Launch({1}, {2}, 0, step, [&] {{ CallAll({0}, a); }});\n}}\n",
          part.name, part.grid, part.block);
    out << "}\n";
    out.close();
    std::string command = fmt::format("{} -shared -o {} {}", kHostCompiler, library, source);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
    for (const Part& part : parts)
      runs_.push_back(reinterpret_cast<Run_*>(dlsym(handle, ("run_" + part.name).c_str())));
    fs::remove(source);
    fs::remove(library);
  }

  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    std::vector<void*> pointers;
    for (const at::Tensor& tensor : inputs) pointers.push_back(tensor.data_ptr());
    for (const at::Tensor& tensor : outputs) pointers.push_back(tensor.data_ptr());
    for (uint64_t number : numbers) pointers.push_back(reinterpret_cast<void*>(number));
    for (Run_* run : runs_) run(pointers.data(), step);
  }
  // Arguments after the tensors.
  std::vector<uint64_t> numbers;
  // The order in which threads run between barriers: an odd number.
  static inline unsigned step = 1;

 private:
  using Run_ = void(void** arguments, unsigned step);
  std::vector<Run_*> runs_;
};

// Equal programs are compiled once.
inline std::shared_ptr<const HostKernel> MakeHostKernel(const KernelProgram& program) {
  static std::map<std::string, std::shared_ptr<const HostKernel>> made;
  std::shared_ptr<const HostKernel>& kernel = made[program.text];
  if (!kernel)
    kernel = std::make_shared<HostKernel>(
        ProgramText(program.text),
        std::vector<HostKernel::Part>{{program.name, program.grid, program.block}});
  return kernel;
}

}  // namespace heddle::run
