// BlasLt: the functions of cuBLASLt that Heddle calls, looked up at run time. LtMatmul: a matrix
// product with an algorithm that the caller chooses.
//
// As for the driver (driver.h), this needs neither CUDA's headers nor a toolkit.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/run/cuda/driver.h"

namespace heddle::run {

// C[m, n] = A[m, k] B[k, n] of bf16 numbers, added in f32. All three are stored by rows.
struct MatmulShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // A is stored as [k, m], B as [n, k].
  bool a_transposed = false;
  bool b_transposed = false;

  auto operator<=>(const MatmulShape&) const = default;
  // Such as `8192 x 2048 x 768, B transposed`.
  std::string Format() const;
};

// A cublasLtMatmulAlgo_t. It means the same in every process with the same cuBLASLt and GPU.
struct MatmulAlgorithm {
  std::array<uint64_t, 8> words = {};
  // Needed by the product, in bytes.
  uint64_t workspace = 0;

  bool operator==(const MatmulAlgorithm&) const = default;
  // Text for a file.
  std::string Print() const;
  // Returns nullopt if the text is not one that Print wrote.
  static std::optional<MatmulAlgorithm> Parse(std::string_view text);
};

struct BlasLt {
  struct Handle;
  struct Descriptor;
  struct Layout;
  struct Preference;
  // cublasLtMatmulHeuristicResult_t.
  struct Candidate {
    std::array<uint64_t, 8> algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
  };

  size_t (*version)() = nullptr;
  int (*create)(Handle** handle) = nullptr;
  int (*descriptor_create)(Descriptor** made, int compute, int scale) = nullptr;
  int (*descriptor_set)(Descriptor* descriptor, int key, const void* value, size_t bytes) = nullptr;
  int (*descriptor_destroy)(Descriptor* descriptor) = nullptr;
  int (*layout_create)(Layout** made, int type, uint64_t rows, uint64_t columns,
                       int64_t stride) = nullptr;
  int (*layout_destroy)(Layout* layout) = nullptr;
  int (*preference_create)(Preference** made) = nullptr;
  int (*preference_set)(Preference* preference, int key, const void* value, size_t bytes) = nullptr;
  int (*preference_destroy)(Preference* preference) = nullptr;
  int (*heuristic)(Handle* handle, Descriptor* product, Layout* a, Layout* b, Layout* c, Layout* d,
                   Preference* preference, int most, Candidate* candidates, int* count) = nullptr;
  int (*check)(Handle* handle, Descriptor* product, Layout* a, Layout* b, Layout* c, Layout* d,
               const void* algorithm, Candidate* result) = nullptr;
  int (*multiply)(Handle* handle, Descriptor* product, const void* alpha, const void* a,
                  Layout* a_layout, const void* b, Layout* b_layout, const void* beta,
                  const void* c, Layout* c_layout, void* d, Layout* d_layout, const void* algorithm,
                  void* workspace, size_t workspace_bytes, CudaStreamHandle* stream) = nullptr;
  Handle* handle = nullptr;

  // Opens the cuBLASLt that libtorch uses, once. Fails if the process has none, or no GPU.
  static Result<const BlasLt*> Open();
};

class LtMatmul {
 public:
  static Result<LtMatmul> Make(const BlasLt& library, const MatmulShape& shape);

  // Returns the algorithms that cuBLASLt proposes, its favourite first.
  Result<std::vector<MatmulAlgorithm>> Algorithms() const;
  // Fails if the algorithm cannot compute this product on this GPU.
  Status Check(const MatmulAlgorithm& algorithm) const;
  // Launches the product. All pointers are aligned to 256 bytes; `workspace` has the bytes that the
  // algorithm needs.
  Status Run(const MatmulAlgorithm& algorithm, const void* a, const void* b, void* c,
             void* workspace, CudaStreamHandle* stream) const;

 private:
  struct Destroy {
    const BlasLt* library;
    void operator()(BlasLt::Descriptor* d) const { library->descriptor_destroy(d); }
    void operator()(BlasLt::Layout* l) const { library->layout_destroy(l); }
    void operator()(BlasLt::Preference* p) const { library->preference_destroy(p); }
  };
  template <typename T>
  using Owned = std::unique_ptr<T, Destroy>;

  explicit LtMatmul(const BlasLt& library) : library_(&library) {}
  Result<Owned<BlasLt::Layout>> MakeLayout(int64_t rows, int64_t columns) const;

  const BlasLt* library_;
  Owned<BlasLt::Descriptor> product_;
  Owned<BlasLt::Layout> a_;
  Owned<BlasLt::Layout> b_;
  Owned<BlasLt::Layout> c_;
};

}  // namespace heddle::run
