#include "heddle/run/runtime/device/group_kernels.h"

#include <array>

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

namespace heddle::run {
namespace {

class CudaProgramKernel : public GroupKernel {
 public:
  CudaProgramKernel(const KernelDevice& device, CudaKernel kernel, const KernelProgram& program)
      : device_(device),
        kernel_(std::move(kernel)),
        shape_{.grid = program.grid, .block = program.block} {}

  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    std::vector<const void*> pointers;
    for (const at::Tensor& tensor : inputs) pointers.push_back(tensor.const_data_ptr());
    for (const at::Tensor& tensor : outputs) pointers.push_back(tensor.const_data_ptr());
    std::vector<void*> arguments;
    for (const void*& pointer : pointers) arguments.push_back(&pointer);
    ThrowIfFailed(kernel_.Launch(device_.stream(), shape_, arguments));
  }

 private:
  const KernelDevice& device_;
  CudaKernel kernel_;
  CudaKernel::Shape shape_;
};

class CudaNormWeightKernel : public GroupKernel {
 public:
  CudaNormWeightKernel(const KernelDevice& device, std::vector<CudaKernel> kernels, int64_t width)
      : device_(device), kernels_(std::move(kernels)), width_(width) {}

  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    if (AddsChunks(inputs[0].size(0))) {
      RunChunks(inputs, outputs[0]);
      return;
    }
    at::Tensor sums = at::empty({32, width_}, inputs[2].options());
    std::array<const void*, 4> pointers = {inputs[0].const_data_ptr(), inputs[1].const_data_ptr(),
                                           inputs[2].const_data_ptr(), sums.const_data_ptr()};
    uint64_t groups = static_cast<uint64_t>(inputs[0].size(0)) / 256;
    std::array<void*, 5> arguments = {&pointers[0], &pointers[1], &pointers[2], &pointers[3],
                                      &groups};
    auto width = static_cast<unsigned>(width_);
    ThrowIfFailed(
        kernels_[0].Launch(device_.stream(), {.grid = width / 64 * 8, .block = 128}, arguments));
    const void* result = outputs[0].const_data_ptr();
    std::array<void*, 2> last = {&pointers[3], &result};
    ThrowIfFailed(kernels_[1].Launch(device_.stream(), {.grid = width / 32, .block = 128}, last));
  }

 private:
  // Whether ATen adds chunks of 32 rows first: with many rows, and too few columns to keep half of
  // the multiprocessors busy.
  bool AddsChunks(int64_t rows) const {
    return rows > 65536 && width_ / 32 < device_.multiprocessors() / 2;
  }

  void RunChunks(std::span<const at::Tensor> inputs, const at::Tensor& result) const {
    // ATen launches at most 32,768 blocks, of 32 columns each.
    uint64_t chunks = static_cast<uint64_t>(inputs[0].size(0)) / 32;
    uint64_t stored = std::min<uint64_t>(chunks, 32768 / static_cast<uint64_t>(width_ / 32));
    at::Tensor parts = at::empty({static_cast<int64_t>(stored), width_}, result.options());
    std::array<const void*, 4> pointers = {inputs[0].const_data_ptr(), inputs[1].const_data_ptr(),
                                           inputs[2].const_data_ptr(), parts.const_data_ptr()};
    std::array<void*, 6> arguments = {&pointers[0], &pointers[1], &pointers[2],
                                      &pointers[3], &chunks,      &stored};
    auto warps = static_cast<unsigned>(stored) * static_cast<unsigned>(width_ / 64);
    ThrowIfFailed(
        kernels_[2].Launch(device_.stream(), {.grid = (warps + 3) / 4, .block = 128}, arguments));
    at::Tensor out = result;
    at::sum_out(out, parts, {0});
  }

  const KernelDevice& device_;
  std::vector<CudaKernel> kernels_;
  int64_t width_;
};

// Entries per launch: kernels accept about 4 KiB of arguments on every GPU.
constexpr size_t kCasts = 120;
constexpr int64_t kCastsOfBlock = 4096;

struct CastEntry {
  const void* from;
  void* to;
  uint64_t count;
  uint32_t block;
  uint32_t aligned;
};
struct CastList {
  std::array<CastEntry, kCasts> entries;
  uint32_t count;
};

class CudaCastsKernel : public GroupKernel {
 public:
  CudaCastsKernel(const KernelDevice& device, CudaKernel kernel)
      : device_(device), kernel_(std::move(kernel)) {}

  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    for (size_t first = 0; first < inputs.size(); first += kCasts) {
      size_t count = std::min(kCasts, inputs.size() - first);
      Launch(inputs.subspan(first, count), outputs.subspan(first, count));
    }
  }

 private:
  void Launch(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const {
    CastList list{};
    uint32_t blocks = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      int64_t count = inputs[i].numel();
      if (count == 0) continue;
      CastEntry entry{inputs[i].const_data_ptr(), outputs[i].mutable_data_ptr(),
                      static_cast<uint64_t>(count), blocks, 0};
      auto all = reinterpret_cast<uintptr_t>(entry.from) | reinterpret_cast<uintptr_t>(entry.to);
      entry.aligned = all % 16 == 0 ? 1 : 0;
      blocks += static_cast<uint32_t>((count + kCastsOfBlock - 1) / kCastsOfBlock);
      list.entries[list.count++] = entry;
    }
    if (list.count == 0) return;
    std::array<void*, 1> arguments = {&list};
    ThrowIfFailed(kernel_.Launch(device_.stream(), {.grid = blocks, .block = 256}, arguments));
  }

  const KernelDevice& device_;
  CudaKernel kernel_;
};

// Tensors per launch, and elements per block.
constexpr size_t kNorms = 160;
constexpr int64_t kNormChunk = 65536;

struct NormEntry {
  const void* from;
  uint64_t count;
  uint32_t block;
  uint32_t narrow;
};
struct NormList {
  std::array<NormEntry, kNorms> entries;
  uint32_t count;
};

class CudaSquaredNormKernel : public GroupKernel {
 public:
  CudaSquaredNormKernel(const KernelDevice& device, std::vector<CudaKernel> kernels)
      : device_(device), kernels_(std::move(kernels)) {}

  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    for (size_t first = 0; first < inputs.size(); first += kNorms) {
      auto count = static_cast<int64_t>(std::min(kNorms, inputs.size() - first));
      auto from = static_cast<int64_t>(first);
      Launch(inputs.subspan(first, static_cast<size_t>(count)),
             outputs[0].slice(0, from, from + count));
    }
  }

 private:
  void Launch(std::span<const at::Tensor> inputs, const at::Tensor& squares) const {
    NormList list{};
    uint32_t blocks = 0;
    for (const at::Tensor& input : inputs) {
      list.entries[list.count++] = {input.const_data_ptr(), static_cast<uint64_t>(input.numel()),
                                    blocks, input.scalar_type() == at::kBFloat16 ? 1u : 0u};
      blocks += static_cast<uint32_t>((input.numel() + kNormChunk - 1) / kNormChunk);
    }
    at::Tensor sums = at::empty({blocks}, squares.options());
    const void* parts = sums.const_data_ptr();
    const void* result = squares.const_data_ptr();
    std::array<void*, 3> arguments = {&list, &parts, &result};
    if (blocks > 0)
      ThrowIfFailed(kernels_[0].Launch(device_.stream(), {.grid = blocks, .block = 512},
                                       std::span(arguments).first(2)));
    ThrowIfFailed(
        kernels_[1].Launch(device_.stream(), {.grid = list.count, .block = 512}, arguments));
  }

  const KernelDevice& device_;
  std::vector<CudaKernel> kernels_;
};

}  // namespace

Result<std::unique_ptr<GroupKernel>> MakeSquaredNormKernel(KernelDevice& device) {
  HEDDLE_TRY(std::vector<CudaKernel> kernels,
             device.Compile(KernelText("squared_norm"), {"squared_norm_parts", "squared_norm_sums"},
                            {fmt::format("-DENTRIES={}", kNorms)}));
  return std::unique_ptr<GroupKernel>(
      std::make_unique<CudaSquaredNormKernel>(device, std::move(kernels)));
}

Result<std::unique_ptr<GroupKernel>> MakeProgramKernel(KernelDevice& device,
                                                       const KernelProgram& program) {
  HEDDLE_TRY(std::vector<CudaKernel> kernels,
             device.Compile(ProgramText(program.text), {program.name}));
  return std::unique_ptr<GroupKernel>(
      std::make_unique<CudaProgramKernel>(device, std::move(kernels[0]), program));
}

Result<std::unique_ptr<GroupKernel>> MakeNormWeightKernel(KernelDevice& device, int64_t width,
                                                          DType dtype) {
  HEDDLE_TRY(std::vector<CudaKernel> kernels,
             device.Compile(KernelText("norm_weight"),
                            {"norm_weight_parts", "norm_weight_sums", "norm_weight_chunks"},
                            {fmt::format("-DWIDTH={}", width),
                             dtype == DType::kBF16 ? "-DELEMENT=u16" : "-DELEMENT=float"}));
  return std::unique_ptr<GroupKernel>(
      std::make_unique<CudaNormWeightKernel>(device, std::move(kernels), width));
}

Result<std::unique_ptr<GroupKernel>> MakeCastsKernel(KernelDevice& device, DType from) {
  HEDDLE_TRY(std::vector<CudaKernel> kernels,
             device.Compile(KernelText("casts"), {"casts"},
                            {fmt::format("-DENTRIES={}", kCasts),
                             fmt::format("-DWIDEN={}", from == DType::kBF16 ? 1 : 0)}));
  return std::unique_ptr<GroupKernel>(
      std::make_unique<CudaCastsKernel>(device, std::move(kernels[0])));
}

}  // namespace heddle::run
