#include "heddle/run/cuda/blas_lt.h"

#include <dlfcn.h>

#include <charconv>

namespace heddle::run {
namespace {

// Constants of cublasLt.h.
constexpr int kF32 = 0;
constexpr int kBF16 = 14;
constexpr int kComputeF32 = 68;
constexpr int kTransposeFirst = 3;
constexpr int kTransposeSecond = 4;
constexpr int kMostWorkspace = 1;
constexpr uint64_t kWorkspaceBytes = 32 << 20;
constexpr int kCandidates = 32;

Failure Failed(std::string_view call, int status) {
  return Error(Diag::kEnvironment, "{}: status {}", call, status);
}

Result<BlasLt> Load() {
  void* library = nullptr;
  // libtorch has loaded its own; another version may have other bits.
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (library == nullptr) library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  }
  if (library == nullptr)
    return Error(Diag::kEnvironment, "this libtorch uses no cuBLASLt of version 12 or 13");
  BlasLt blas;
  std::string missing;
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(blas.version, "cublasLtGetVersion");
  find(blas.create, "cublasLtCreate");
  find(blas.descriptor_create, "cublasLtMatmulDescCreate");
  find(blas.descriptor_set, "cublasLtMatmulDescSetAttribute");
  find(blas.descriptor_destroy, "cublasLtMatmulDescDestroy");
  find(blas.layout_create, "cublasLtMatrixLayoutCreate");
  find(blas.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(blas.preference_create, "cublasLtMatmulPreferenceCreate");
  find(blas.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(blas.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(blas.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(blas.check, "cublasLtMatmulAlgoCheck");
  find(blas.multiply, "cublasLtMatmul");
  if (!missing.empty()) return Error(Diag::kEnvironment, "this cuBLASLt has no {}", missing);
  if (int failed = blas.create(&blas.handle)) return Failed("cublasLtCreate", failed);
  return blas;
}

}  // namespace

std::string MatmulShape::Format() const {
  return fmt::format("{} x {} x {}{}{}", m, n, k, a_transposed ? ", A transposed" : "",
                     b_transposed ? ", B transposed" : "");
}

std::string MatmulAlgorithm::Print() const {
  std::string text;
  for (uint64_t word : words) text += fmt::format("{:016x} ", word);
  return text + fmt::format("{:016x}", workspace);
}

std::optional<MatmulAlgorithm> MatmulAlgorithm::Parse(std::string_view text) {
  constexpr size_t kDigits = 16;
  MatmulAlgorithm read;
  std::array<uint64_t*, 9> numbers;
  for (size_t i = 0; i < read.words.size(); ++i) numbers[i] = &read.words[i];
  numbers.back() = &read.workspace;
  if (text.size() != numbers.size() * (kDigits + 1) - 1) return std::nullopt;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const char* first = text.data() + i * (kDigits + 1);
    auto [end, error] = std::from_chars(first, first + kDigits, *numbers[i], 16);
    bool separated = i + 1 == numbers.size() || first[kDigits] == ' ';
    if (error != std::errc() || end != first + kDigits || !separated) return std::nullopt;
  }
  return read.workspace <= kWorkspaceBytes ? std::optional(read) : std::nullopt;
}

Result<const BlasLt*> BlasLt::Open() {
  static const Result<BlasLt> library = Load();
  if (!library.ok()) return Failure{library.diagnostics()};
  return &*library;
}

// cuBLAS stores matrices by columns. Read by columns, A, B and C are their transposes, and
// C' = B' A'.
Result<LtMatmul> LtMatmul::Make(const BlasLt& library, const MatmulShape& shape) {
  LtMatmul made(library);
  BlasLt::Descriptor* product = nullptr;
  if (int failed = library.descriptor_create(&product, kComputeF32, kF32))
    return Failed("cublasLtMatmulDescCreate", failed);
  made.product_ = {product, Destroy{&library}};
  for (auto [key, transposed] :
       {std::pair(kTransposeFirst, shape.b_transposed), {kTransposeSecond, shape.a_transposed}}) {
    int32_t value = transposed ? 1 : 0;
    if (int failed = library.descriptor_set(product, key, &value, sizeof value))
      return Failed("cublasLtMatmulDescSetAttribute", failed);
  }
  auto [a_rows, a_columns] =
      shape.a_transposed ? std::pair(shape.k, shape.m) : std::pair(shape.m, shape.k);
  auto [b_rows, b_columns] =
      shape.b_transposed ? std::pair(shape.n, shape.k) : std::pair(shape.k, shape.n);
  HEDDLE_TRY(made.a_, made.MakeLayout(a_rows, a_columns));
  HEDDLE_TRY(made.b_, made.MakeLayout(b_rows, b_columns));
  HEDDLE_TRY(made.c_, made.MakeLayout(shape.m, shape.n));
  return made;
}

Result<LtMatmul::Owned<BlasLt::Layout>> LtMatmul::MakeLayout(int64_t rows, int64_t columns) const {
  BlasLt::Layout* layout = nullptr;
  if (int failed = library_->layout_create(&layout, kBF16, static_cast<uint64_t>(columns),
                                           static_cast<uint64_t>(rows), columns))
    return Failed("cublasLtMatrixLayoutCreate", failed);
  return Owned<BlasLt::Layout>(layout, Destroy{library_});
}

Result<std::vector<MatmulAlgorithm>> LtMatmul::Algorithms() const {
  BlasLt::Preference* created = nullptr;
  if (int failed = library_->preference_create(&created))
    return Failed("cublasLtMatmulPreferenceCreate", failed);
  Owned<BlasLt::Preference> preference(created, Destroy{library_});
  if (int failed = library_->preference_set(created, kMostWorkspace, &kWorkspaceBytes,
                                            sizeof kWorkspaceBytes))
    return Failed("cublasLtMatmulPreferenceSetAttribute", failed);
  std::array<BlasLt::Candidate, kCandidates> candidates;
  int count = 0;
  if (int failed =
          library_->heuristic(library_->handle, product_.get(), b_.get(), a_.get(), c_.get(),
                              c_.get(), created, kCandidates, candidates.data(), &count))
    return Failed("cublasLtMatmulAlgoGetHeuristic", failed);
  std::vector<MatmulAlgorithm> algorithms;
  for (int i = 0; i < count; ++i) {
    const BlasLt::Candidate& candidate = candidates[static_cast<size_t>(i)];
    if (candidate.state == 0) algorithms.push_back({candidate.algorithm, candidate.workspace});
  }
  return algorithms;
}

Status LtMatmul::Check(const MatmulAlgorithm& algorithm) const {
  BlasLt::Candidate result{};
  if (int failed = library_->check(library_->handle, product_.get(), b_.get(), a_.get(), c_.get(),
                                   c_.get(), algorithm.words.data(), &result))
    return Failed("cublasLtMatmulAlgoCheck", failed);
  if (result.workspace > algorithm.workspace)
    return Error(Diag::kEnvironment, "a matrix product needs {} bytes of workspace, but got {}",
                 result.workspace, algorithm.workspace);
  return Done{};
}

Status LtMatmul::Run(const MatmulAlgorithm& algorithm, const void* a, const void* b, void* c,
                     void* workspace, CudaStreamHandle* stream) const {
  const float one = 1;
  const float zero = 0;
  int failed = library_->multiply(library_->handle, product_.get(), &one, b, b_.get(), a, a_.get(),
                                  &zero, c, c_.get(), c, c_.get(), algorithm.words.data(),
                                  workspace, algorithm.workspace, stream);
  return failed == 0 ? Status(Done{}) : Status(Failed("cublasLtMatmul", failed));
}

}  // namespace heddle::run
