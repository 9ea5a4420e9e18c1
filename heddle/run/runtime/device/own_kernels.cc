#include "heddle/run/runtime/device/own_kernels.h"

#include <array>
#include <map>

#include <ATen/TensorIndexing.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>

#include "heddle/core/base/hash.h"
#include "heddle/run/aten/said.h"
#include "heddle/run/runtime/device/group_kernels.h"
#include "heddle/run/runtime/device/same_numbers.h"

namespace heddle::run {
namespace {

// --- Loss

// How rows lie over blocks: in shared memory, of several blocks where one is too small.
struct LossShape {
  int blocks = 1;
  bool keep = true;
  unsigned shared_bytes = 0;
};

LossShape ShapeOf(const KernelDevice& device, int64_t columns) {
  bool clusters = device.architecture() >= "sm_90";
  for (int blocks : {1, 2, 4}) {
    if (blocks > 1 && !clusters) break;
    int64_t threads = 1024 / blocks;
    int64_t rest_rounds = (columns % 4096 + 1023) / 1024;
    int64_t bytes = columns / 4096 * threads * 8 + rest_rounds * threads * 2;
    // Two blocks of a multiprocessor hide each other's barriers.
    if (bytes <= device.most_shared() / (blocks == 4 ? 2 : 1) - 1024)
      return {blocks, true, static_cast<unsigned>(bytes)};
  }
  return {1, false, 0};
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

// Entries of one launch: kernels take about 4 KiB of arguments on every GPU.
constexpr size_t kEntries = 80;
constexpr int64_t kBlockElements = 4096;

struct AdamWEntry {
  void* param;
  const void* grad;
  void* average;
  void* square;
  uint64_t count;
  uint32_t block;
  uint32_t aligned;
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
                       static_cast<uint64_t>(update.param.numel()),
                       blocks,
                       0};
      uintptr_t all = 0;
      for (const void* p :
           {static_cast<const void*>(entry.param), entry.grad,
            static_cast<const void*>(entry.average), static_cast<const void*>(entry.square)})
        all |= reinterpret_cast<uintptr_t>(p);
      entry.aligned = all % 16 == 0 ? 1 : 0;
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

// --- Proofs

// Numbers that are the same in every run, in [-1, 1).
at::Tensor Noise(at::IntArrayRef sizes, uint64_t seed, c10::Device device) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(static_cast<int64_t>(Scramble(seed ^ (i << 20)) >> 40)) * 0x1p-23F - 1;
  return at::from_blob(values.data(), sizes, at::kFloat).to(device);
}

// Rows with infinities, NaN, ties, denormals, large and ignored ones.
bool ProvesLoss(const LossKernel& kernel, const LossRun& run, c10::Device device) {
  constexpr int64_t kRows = 24;
  at::Tensor logits = Noise({kRows, run.columns}, 1, device).mul_(8);
  double infinity = std::numeric_limits<double>::infinity();
  logits[1].fill_(0);
  logits[2][5].fill_(80);
  logits[3].mul_(30);
  logits[4].slice(0, 1).fill_(-infinity);
  logits[5][7].fill_(infinity);
  logits[6][9].fill_(std::numeric_limits<double>::quiet_NaN());
  logits[7].mul_(1e-38);
  logits[8].fill_(-infinity);
  logits = logits.to(at::kBFloat16);
  at::Tensor labels = at::full({kRows}, 3, logits.options().dtype(at::kLong));
  for (int64_t row = 0; row < kRows; ++row) {
    auto label = static_cast<int64_t>(Scramble(static_cast<uint64_t>(row)) >> 33) % run.columns;
    labels[row].fill_(row % 6 == 5 ? run.ignored : row == 0 ? run.columns - 1 : label);
  }
  at::Tensor scale = at::full({}, 1.0 / 19, logits.options().dtype(at::kFloat));
  at::Tensor logp = at::_log_softmax(logits.to(at::kFloat), 1, false);
  // A NaN or infinite row hides all others in the sum: the picked elements are compared as well.
  auto [sum, weight] = at::nll_loss_forward(logp.slice(0, 9), labels.slice(0, 9), {},
                                            at::Reduction::Sum, run.ignored);
  auto [all, all_weight] = at::nll_loss_forward(logp, labels, {}, at::Reduction::Sum, run.ignored);
  at::Tensor expected = at::_log_softmax_backward_data(
                            at::nll_loss_backward(scale, logp, labels, {}, at::Reduction::Sum,
                                                  run.ignored, all_weight),
                            logp, 1, at::kFloat)
                            .to(at::kBFloat16);
  at::Tensor counted = labels.ne(run.ignored);
  at::Tensor picked_by_aten =
      logp.gather(1, labels.clamp(0).unsqueeze(1)).squeeze(1).masked_select(counted);
  at::Tensor picked = at::full({kRows}, 7, scale.options());
  at::Tensor kinds = at::full({kRows}, 7, labels.options());
  for (bool in_place : {false, true}) {
    at::Tensor from = logits.clone();
    at::Tensor gradient = in_place ? from : at::full_like(from, 7);
    kernel.Run(from, gradient, labels, picked, kinds, scale);
    auto [own, own_weight] = at::nll_loss_forward(
        picked.slice(0, 9).view({-1, 1}), kinds.slice(0, 9), {}, at::Reduction::Sum, run.ignored);
    if (!SameNumbers(gradient, expected) || !SameNumbers(own, sum) ||
        !SameNumbers(picked.masked_select(counted), picked_by_aten) ||
        !kinds.eq(run.ignored).equal(counted.logical_not()))
      return false;
  }
  return true;
}

bool ProvesAdamW(const AdamWKernel& kernel, const AdamWRun& run, c10::Device device) {
  std::vector<int64_t> sizes = {1, 3, 4095, 4096, 4097, 100003};
  at::Tensor lr = at::full({}, 3e-4, at::TensorOptions().dtype(at::kFloat).device(device));
  at::Tensor clip = run.clip ? at::full_like(lr, 0.37) : at::Tensor();
  for (double number : {1.0, 7.0, 1000.0}) {
    at::Tensor step = at::full_like(lr, number);
    std::vector<AdamWKernel::Update> own;
    std::vector<AdamWKernel::Update> atens;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor grad = Noise({sizes[i]}, 10 * i + 1, device).mul_(1e-2);
      // Parameters that have never had a gradient, and those with a tiny one.
      grad.slice(0, 0, std::nullopt, 7).fill_(0);
      grad.slice(0, 1, std::nullopt, 11).mul_(1e-30);
      AdamWKernel::Update update{Noise({sizes[i]}, 10 * i, device), grad,
                                 Noise({sizes[i]}, 10 * i + 2, device).mul_(1e-3),
                                 Noise({sizes[i]}, 10 * i + 3, device).abs_().mul_(1e-5)};
      update.square.slice(0, 0, std::nullopt, 7).fill_(0);
      own.push_back({update.param.clone(), grad, update.average.clone(), update.square.clone()});
      atens.push_back(update);
    }
    kernel.Run(own, lr, step, clip);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const AdamWKernel::Update& u = atens[i];
      at::Tensor grad = clip.defined() ? at::mul(u.grad, clip) : u.grad;
      at::_fused_adamw_({u.param}, {grad}, {u.average}, {u.square}, {}, {step}, lr, run.beta1,
                        run.beta2, run.weight_decay, run.eps, /*amsgrad=*/false,
                        /*maximize=*/false);
      if (!SameNumbers(own[i].param, u.param) || !SameNumbers(own[i].average, u.average) ||
          !SameNumbers(own[i].square, u.square))
        return false;
    }
  }
  return true;
}

class OwnKernels : public Kernels {
 public:
  OwnKernels(const CudaDriver& driver, const Nvrtc& nvrtc, std::string architecture,
             c10::Device device, std::function<void(const std::string&)> notice)
      : device_(driver, nvrtc, std::move(architecture), device), notice_(std::move(notice)) {}

  std::unique_ptr<LossKernel> Loss(const LossRun& run) override {
    // Shorter rows, and rows that do not begin at multiples of 16 bytes, add in another order.
    if (run.columns <= 12288 || run.columns % 4 != 0) return nullptr;
    LossShape shape = ShapeOf(device_, run.columns);
    std::vector<std::string> defines = {fmt::format("-DCOLUMNS={}", run.columns),
                                        fmt::format("-DBLOCKS={}", shape.blocks),
                                        fmt::format("-DKEEP={}", shape.keep ? 1 : 0)};
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

  std::shared_ptr<const GroupKernel> Program(const KernelProgram& program) override {
    return Kept(program.name, program.text, [&] { return MakeProgramKernel(device_, program); });
  }
  std::shared_ptr<const GroupKernel> NormWeight(int64_t width, DType dtype) override {
    return Kept("norm_weight", fmt::format("norm_weight {} {}", width, Name(dtype)),
                [&] { return MakeNormWeightKernel(device_, width, dtype); });
  }
  std::shared_ptr<const GroupKernel> Casts(DType from) override {
    return Kept("casts", fmt::format("casts {}", Name(from)),
                [&] { return MakeCastsKernel(device_, from); });
  }

 private:
  // The kernel of a text, compiled when it is first asked for.
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

  // The kernel, if it compiles and `prove` finds the bits of ATen.
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
      Refuse(name, SaidByAten(error));
    }
    return nullptr;
  }
  void Refuse(const std::string& name, std::string_view why) const override {
    notice_(fmt::format("kernel {} is not used, ATen runs its nodes: {}", name, why));
  }

  KernelDevice device_;
  std::function<void(const std::string&)> notice_;
  std::map<std::string, std::shared_ptr<const GroupKernel>> kept_;
};

}  // namespace

Result<std::unique_ptr<Kernels>> OpenKernels(c10::Device device,
                                             std::function<void(const std::string& line)> notice) {
  HEDDLE_TRY(const CudaDriver* driver, CudaDriver::Open());
  HEDDLE_TRY(const Nvrtc* nvrtc, Nvrtc::Open());
  HEDDLE_TRY(std::string architecture, driver->Architecture(device.index()));
  return std::unique_ptr<Kernels>(std::make_unique<OwnKernels>(
      *driver, *nvrtc, std::move(architecture), device, std::move(notice)));
}

}  // namespace heddle::run
