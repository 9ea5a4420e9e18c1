// Nvrtc: compiles CUDA C++ to machine code in this process, without a toolkit and without a GPU.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

// Source of a kernel. One version of NVRTC compiles equal sources to equal machine code.
struct CudaSource {
  std::string text;
  // Such as `sm_90a`.
  std::string architecture;
  // Added to the options for exact rounding: IEEE division and square root, denormals kept.
  std::vector<std::string> options = {};
};

class Nvrtc {
 public:
  // Opens the NVRTC that libtorch uses, or one that the loader finds. Fails if neither exists.
  static Result<const Nvrtc*> Open();

  // Such as `13.0`.
  const std::string& version() const { return version_; }
  // Returns a cubin. Fails with the compiler's messages. `log` receives those of a successful
  // compilation.
  Result<std::string> Compile(const CudaSource& source, std::string* log = nullptr) const;

 private:
  struct Program;
  struct Functions {
    int (*version)(int* major, int* minor) = nullptr;
    int (*create)(Program** program, const char* text, const char* name, int headers,
                  const char* const* contents, const char* const* names) = nullptr;
    int (*compile)(Program* program, int options, const char* const* texts) = nullptr;
    int (*log_size)(Program* program, size_t* bytes) = nullptr;
    int (*log)(Program* program, char* text) = nullptr;
    int (*cubin_size)(Program* program, size_t* bytes) = nullptr;
    int (*cubin)(Program* program, char* bytes) = nullptr;
    int (*destroy)(Program** program) = nullptr;
    const char* (*error)(int result) = nullptr;
  };

  static Result<Nvrtc> Load();

  Functions f_;
  std::string version_;
};

}  // namespace heddle::run
