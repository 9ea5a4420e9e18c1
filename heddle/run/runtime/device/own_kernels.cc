#include "heddle/run/runtime/device/own_kernels.h"

#include <array>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "heddle/run/aten/error_message.h"
#include "heddle/run/runtime/device/group_kernels.h"
#include "heddle/run/runtime/device/index_add.h"
#include "heddle/run/runtime/device/matmuls.h"
#include "heddle/run/runtime/device/proofs.h"

namespace heddle::run {
namespace {

// --- Loss

// The distribution of rows over blocks: in shared memory, of several blocks if one is too small.
struct LossShape {
  int blocks = 1;
  // Blocks per multiprocessor.
  int resident = 1;
  bool keep = false;
  unsigned shared_bytes = 0;
};

// With several blocks per multiprocessor, some load while others compute.
LossShape ShapeOf(const KernelDevice& device, int64_t columns) {
  // Two rows per multiprocessor fit into half of the L2 cache.
  if (2 * device.multiprocessors() * columns * 2 <= device.cache_bytes() / 2)
    return {1, 2, false, 0};
  bool clusters = device.architecture() >= "sm_90";
  for (auto [blocks, resident] : {std::pair(1, 1), {2, 4}, {4, 3}, {8, 1}}) {
    if (clusters == (blocks == 1)) continue;
    int64_t threads = 1024 / blocks;
    int64_t rest_rounds = (columns % 4096 + 1023) / 1024;
    int64_t bytes = columns / 4096 * threads * 8 + rest_rounds * threads * 2;
    // A block needs 1 KiB more, and has some shared memory of its own.
    if (resident * (bytes + 2048) <= device.most_shared())
      return {blocks, resident, true, static_cast<unsigned>(bytes)};
  }
  return {1, 1, false, 0};
}

class CudaLossKernel : public LossKernel {
 public:
  CudaLossKernel(const KernelDevice& device, CudaKernel kernel, LossShape shape, int64_t ignored)
      : device_(device), kernel_(std::move(kernel)), shape_(shape), ignored_(ignored) {}

  void Run(const at::Tensor& logits, const at::Tensor& gradient, const at::Tensor& labels,
           const at::Tensor& picked, const at::Tensor& kinds,
           const at::Tensor& scale) const override {
    std::array<const void*, 6> pointers = {logits.const_data_ptr(), gradient.const_data_ptr(),
                                           labels.const_data_ptr(), picked.const_data_ptr(),
                                           kinds.const_data_ptr(),  scale.const_data_ptr()};
    long long ignored = ignored_;
    std::array<void*, 7> arguments;
    for (size_t i = 0; i < pointers.size(); ++i) arguments[i] = &pointers[i];
    arguments[6] = &ignored;
    auto rows = static_cast<unsigned>(picked.numel());
    auto blocks = static_cast<unsigned>(shape_.blocks);
    ThrowIfFailed(kernel_.Launch(
        device_.stream(),
        {.grid = rows * blocks, .block = 1024 / blocks, .shared_bytes = shape_.shared_bytes},
        arguments));
  }

 private:
  const KernelDevice& device_;
  CudaKernel kernel_;
  LossShape shape_;
  int64_t ignored_;
};

// --- AdamW

// Entries per launch: kernels accept about 4 KiB of arguments on every GPU.
constexpr size_t kEntries = 72;
constexpr int64_t kBlockElements = 4096;

struct AdamWEntry {
  void* param;
  const void* grad;
  void* average;
  void* square;
  void* copy;
  uint64_t count;
  uint32_t block;
  uint32_t flags;
};
struct AdamWList {
  std::array<AdamWEntry, kEntries> entries;
  uint32_t count;
};

class CudaAdamWKernel : public AdamWKernel {
 public:
  CudaAdamWKernel(const KernelDevice& device, CudaKernel kernel, const AdamWRun& run)
      : device_(device),
        kernel_(std::move(kernel)),
        numbers_{static_cast<float>(run.beta1), static_cast<float>(run.beta2),
                 static_cast<float>(run.weight_decay), static_cast<float>(run.eps)} {}

  void Run(std::span<const Update> updates, const at::Tensor& lr, const at::Tensor& step,
           const at::Tensor& clip) const override {
    for (size_t first = 0; first < updates.size(); first += kEntries)
      Launch(updates.subspan(first, std::min(kEntries, updates.size() - first)), lr, step, clip);
  }

 private:
  void Launch(std::span<const Update> updates, const at::Tensor& lr, const at::Tensor& step,
              const at::Tensor& clip) const {
    AdamWList list{};
    uint32_t blocks = 0;
    for (const Update& update : updates) {
      if (update.param.numel() == 0) continue;
      AdamWEntry entry{update.param.mutable_data_ptr(),
                       update.grad.const_data_ptr(),
                       update.average.mutable_data_ptr(),
                       update.square.mutable_data_ptr(),
                       update.copy.defined() ? update.copy.mutable_data_ptr() : nullptr,
                       static_cast<uint64_t>(update.param.numel()),
                       blocks,
                       0};
      uintptr_t all = 0;
      for (const void* p :
           {static_cast<const void*>(entry.param), entry.grad,
            static_cast<const void*>(entry.average), static_cast<const void*>(entry.square),
            static_cast<const void*>(entry.copy)})
        all |= reinterpret_cast<uintptr_t>(p);
      entry.flags =
          (all % 16 == 0 ? 1u : 0u) | (update.grad.scalar_type() == at::kBFloat16 ? 2u : 0u);
      blocks += static_cast<uint32_t>((update.param.numel() + kBlockElements - 1) / kBlockElements);
      list.entries[list.count++] = entry;
    }
    if (list.count == 0) return;
    const void* lr_at = lr.const_data_ptr();
    const void* step_at = step.const_data_ptr();
    const void* clip_at = clip.defined() ? clip.const_data_ptr() : nullptr;
    std::array<float, 4> numbers = numbers_;
    std::array<void*, 8> arguments = {&list,       &lr_at,      &step_at,    &clip_at,
                                      &numbers[0], &numbers[1], &numbers[2], &numbers[3]};
    ThrowIfFailed(kernel_.Launch(device_.stream(), {.grid = blocks, .block = 256}, arguments));
  }

  const KernelDevice& device_;
  CudaKernel kernel_;
  std::array<float, 4> numbers_;
};

class OwnKernels : public Kernels {
 public:
  OwnKernels(const CudaDriver& driver, const Nvrtc& nvrtc, std::string architecture,
             c10::Device device, std::function<void(const std::string&)> notice)
      : device_(driver, nvrtc, std::move(architecture), device), notice_(std::move(notice)) {}

  std::unique_ptr<LossKernel> Loss(const LossRun& run) override {
    // For shorter rows, and rows that are not aligned to 16 bytes, ATen adds in another order.
    if (run.columns <= 12288 || run.columns % 4 != 0) return nullptr;
    LossShape shape = ShapeOf(device_, run.columns);
    std::vector<std::string> defines = {
        fmt::format("-DCOLUMNS={}", run.columns), fmt::format("-DBLOCKS={}", shape.blocks),
        fmt::format("-DRESIDENT={}", shape.resident), fmt::format("-DKEEP={}", shape.keep ? 1 : 0)};
    return Proved<LossKernel>("loss", defines, shape.shared_bytes, [&](CudaKernel kernel) {
      auto made = std::make_unique<CudaLossKernel>(device_, std::move(kernel), shape, run.ignored);
      bool same = ProvesLoss(*made, run, device_.device());
      return std::pair(std::move(made), same);
    });
  }

  std::unique_ptr<AdamWKernel> AdamW(const AdamWRun& run) override {
    std::vector<std::string> defines = {fmt::format("-DENTRIES={}", kEntries),
                                        fmt::format("-DCLIP={}", run.clip ? 1 : 0),
                                        fmt::format("-DDECAY={}", run.weight_decay != 0 ? 1 : 0)};
    return Proved<AdamWKernel>("adamw", defines, 0, [&](CudaKernel kernel) {
      auto made = std::make_unique<CudaAdamWKernel>(device_, std::move(kernel), run);
      bool same = ProvesAdamW(*made, run, device_.device());
      return std::pair(std::move(made), same);
    });
  }

  std::unique_ptr<GroupKernel> SquaredNorm() override {
    Result<std::unique_ptr<GroupKernel>> made = MakeSquaredNormKernel(device_);
    if (!made.ok()) {
      Refuse("squared_norm", made.diagnostics()[0].message);
      return nullptr;
    }
    bool same = IsProved("squared_norm", "squared_norm",
                         [&] { return ProvesSquaredNorm(**made, device_.device()); });
    return same ? *std::move(made) : nullptr;
  }

  std::shared_ptr<const GroupKernel> Matmul(const MatmulShape& shape) override {
    Result<const BlasLt*> library = BlasLt::Open();
    if (!library.ok()) return nullptr;
    auto [kept, is_new] = matmuls_.try_emplace(shape);
    if (is_new) kept->second = FindMatmul(**library, shape);
    return kept->second;
  }

  std::shared_ptr<const GroupKernel> Program(const KernelProgram& program) override {
    return Kept(program.name, program.text, [&] { return MakeProgramKernel(device_, program); });
  }
  std::shared_ptr<const GroupKernel> NormWeight(int64_t width, DType dtype) override {
    return Kept("norm_weight", fmt::format("norm_weight {} {}", width, Name(dtype)),
                [&] { return MakeNormWeightKernel(device_, width, dtype); });
  }
  std::shared_ptr<const GroupKernel> IndexAdd(const IndexAddRun& add) override {
    std::string text =
        fmt::format("index_add {} {}{}", add.width, Name(add.dtype), add.to_zero ? " to zero" : "");
    auto kernel = Kept("index_add", text, [&] { return MakeIndexAddKernel(device_, add); });
    if (!kernel) return nullptr;
    at::NoGradGuard no_grad;
    bool same =
        IsProved("index_add", text, [&] { return ProvesIndexAdd(*kernel, add, device_.device()); });
    return same ? kernel : nullptr;
  }
  std::shared_ptr<const GroupKernel> Casts(DType from) override {
    return Kept("casts", fmt::format("casts {}", Name(from)),
                [&] { return MakeCastsKernel(device_, from); });
  }

 private:
  std::shared_ptr<const GroupKernel> FindMatmul(const BlasLt& library, const MatmulShape& shape) {
    MatmulChoices choices(FileCache::DefaultFolder(), MatmulMachine(library, device_));
    std::optional<MatmulChoice> choice = choices.Find(shape);
    if (!choice || !choice->algorithm) return nullptr;
    std::string name = "matmul " + shape.Format();
    Result<std::unique_ptr<GroupKernel>> made =
        MakeMatmulKernel(library, device_, shape, *choice->algorithm);
    if (!made.ok()) {
      Refuse(name, made.diagnostics()[0].message);
      return nullptr;
    }
    at::NoGradGuard no_grad;
    bool same = IsProved(name, name, [&] { return ProvesMatmul(**made, shape, device_.device()); });
    return same ? *std::move(made) : nullptr;
  }

  // Returns the kernel of a text, compiled on first use.
  template <typename Make>
  std::shared_ptr<const GroupKernel> Kept(const std::string& name, const std::string& text,
                                          const Make& make) {
    auto [kept, is_new] = kept_.try_emplace(text);
    if (!is_new) return kept->second;
    Result<std::unique_ptr<GroupKernel>> made = make();
    if (made.ok()) {
      kept->second = *std::move(made);
    } else {
      Refuse(name, made.diagnostics()[0].message);
    }
    return kept->second;
  }

  // Returns the kernel, if it compiles and `prove` finds the bits of ATen.
  template <typename Kernel, typename Prove>
  std::unique_ptr<Kernel> Proved(const std::string& name, const std::vector<std::string>& defines,
                                 unsigned shared_bytes, const Prove& prove) {
    Result<std::vector<CudaKernel>> kernels =
        device_.Compile(KernelText(name), {name}, defines, static_cast<int>(shared_bytes));
    if (!kernels.ok()) {
      Refuse(name, kernels.diagnostics()[0].message);
      return nullptr;
    }
    at::NoGradGuard no_grad;
    try {
      auto [made, same] = prove(std::move((*kernels)[0]));
      if (same) return std::move(made);
      Refuse(name, "its bits are not those of ATen on this GPU");
    } catch (const std::exception& error) {
      Refuse(name, AtenErrorMessage(error));
    }
    return nullptr;
  }
  void Refuse(const std::string& name, std::string_view why) const override {
    notice_(fmt::format("kernel {} is not used, ATen runs its nodes: {}", name, why));
  }

  KernelDevice device_;
  std::function<void(const std::string&)> notice_;
  std::map<std::string, std::shared_ptr<const GroupKernel>> kept_;
  std::map<MatmulShape, std::shared_ptr<const GroupKernel>> matmuls_;
};

}  // namespace

Result<std::unique_ptr<Kernels>> OpenKernels(c10::Device device,
                                             std::function<void(const std::string& line)> notice) {
  HEDDLE_TRY(const CudaDriver* driver, CudaDriver::Open());
  HEDDLE_TRY(const Nvrtc* nvrtc, Nvrtc::Open());
  HEDDLE_TRY(std::string architecture, driver->Architecture(device.index()));
  try {
    // Makes the context that kernels are loaded into.
    at::empty({1}, at::TensorOptions(at::kByte).device(device));
  } catch (const std::exception& error) {
    return Error(Diag::kEnvironment, "{}", AtenErrorMessage(error));
  }
  return std::unique_ptr<Kernels>(std::make_unique<OwnKernels>(
      *driver, *nvrtc, std::move(architecture), device, std::move(notice)));
}

}  // namespace heddle::run
