#include "heddle/run/runtime/device/index_add.h"

#include <algorithm>
#include <array>
#include <bit>

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/zeros_like.h>

#include "heddle/core/base/hash.h"
#include "heddle/run/runtime/aten_backend.h"
#include "heddle/run/runtime/device/group_step.h"
#include "heddle/run/runtime/device/same_numbers.h"

namespace heddle::run {
namespace {

// Threads of a block, which computes a row: two vectors of 16 bytes each, a power of two.
unsigned BlockOf(const IndexAddRun& add) {
  int64_t vectors = add.width * (add.dtype == DType::kBF16 ? 2 : 4) / 16;
  return std::bit_floor(static_cast<unsigned>(std::clamp<int64_t>(vectors / 2, 32, 256)));
}

class CudaIndexAddKernel : public GroupKernel {
 public:
  CudaIndexAddKernel(const KernelDevice& device, std::vector<CudaKernel> kernels, unsigned block)
      : device_(device), kernels_(std::move(kernels)), block_(block) {}

  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    std::array<const void*, 4> pointers = {inputs[0].const_data_ptr(), inputs[1].const_data_ptr(),
                                           inputs[2].const_data_ptr(), outputs[0].const_data_ptr()};
    auto& [self, index, source, result] = pointers;
    auto rows = static_cast<uint64_t>(outputs[0].size(0));
    auto sources = static_cast<uint64_t>(inputs[2].size(0));
    auto blocks = [](uint64_t count) { return static_cast<unsigned>((count + 255) / 256); };
    std::array<void*, 2> start = {&result, &rows};
    ThrowIfFailed(
        kernels_[0].Launch(device_.stream(), {.grid = blocks(rows), .block = 256}, start));
    std::array<void*, 4> list = {&index, &result, &sources, &rows};
    ThrowIfFailed(
        kernels_[1].Launch(device_.stream(), {.grid = blocks(sources), .block = 256}, list));
    std::array<void*, 6> all = {&self, &index, &source, &result, &sources, &rows};
    ThrowIfFailed(kernels_[2].Launch(device_.stream(),
                                     {.grid = static_cast<unsigned>(rows), .block = block_}, all));
  }

 private:
  const KernelDevice& device_;
  std::vector<CudaKernel> kernels_;
  unsigned block_;
};

class IndexAddStep : public Step {
 public:
  IndexAddStep(const RunPlan& plan, NodeId node, const IndexAddRun& add,
               std::shared_ptr<const GroupKernel> kernel, std::unique_ptr<Step> aten)
      : Step(Turn::kAlone),
        plan_(plan),
        node_(node),
        add_(add),
        kernel_(std::move(kernel)),
        aten_(std::move(aten)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    std::array<at::Tensor, 3> inputs;
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = plan_.slots().TensorsOf(plan_.graph().operands(node_)[i], values)[0];
    if (!std::ranges::all_of(inputs, IsPlain)) {
      aten_->Run(at, values, scratch);
      return;
    }
    at::Tensor result = at::empty({add_.rows, add_.width}, inputs[2].options());
    kernel_->Run(inputs, {&result, 1});
    plan_.slots().Set(plan_.graph()[node_].first_result, std::move(result), values);
  }

 private:
  const RunPlan& plan_;
  NodeId node_;
  IndexAddRun add_;
  std::shared_ptr<const GroupKernel> kernel_;
  std::unique_ptr<Step> aten_;
};

}  // namespace

Result<std::unique_ptr<GroupKernel>> MakeIndexAddKernel(KernelDevice& device,
                                                        const IndexAddRun& add) {
  const unsigned block = BlockOf(add);
  HEDDLE_TRY(std::vector<CudaKernel> kernels,
             device.Compile(KernelText("index_add"),
                            {"index_add_start", "index_add_list", "index_add_rows"},
                            {fmt::format("-DWIDTH={}", add.width), fmt::format("-DBLOCK={}", block),
                             fmt::format("-DZERO={}", add.to_zero ? 1 : 0),
                             add.dtype == DType::kBF16 ? "-DELEMENT=u16" : "-DELEMENT=float"}));
  return std::unique_ptr<GroupKernel>(
      std::make_unique<CudaIndexAddKernel>(device, std::move(kernels), block));
}

// Rows with no source, with one, with several, with exactly as many as are listed, and with more;
// negative indices.
bool ProvesIndexAdd(const GroupKernel& kernel, const IndexAddRun& add, c10::Device device) {
  constexpr int64_t kRows = 61;
  std::vector<int64_t> indices(700, 7);
  for (size_t i = 0; i < 150; ++i)
    indices[4 * i] = static_cast<int64_t>(Scramble(i) >> 33) % (kRows - 4);
  for (size_t i = 0; i < 15; ++i) indices[4 * i + 1] = kRows - 3;
  for (size_t i = 15; i < 31; ++i) indices[4 * i + 1] = -2;
  at::Tensor index = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  std::ranges::copy(indices, index.mutable_data_ptr<int64_t>());
  index = index.to(device);
  for (bool special : {false, true}) {
    at::Tensor source = ProofNumbers(index.numel() * add.width, add.dtype, 1, special, device)
                            .view({-1, add.width});
    at::Tensor self =
        ProofNumbers(kRows * add.width, add.dtype, 2, special, device).view({-1, add.width});
    if (add.to_zero) self = at::zeros_like(self);
    // ATen's index_put adds in this order whether it must be deterministic or not.
    at::Tensor expected = at::index_put(self, {index}, source, /*accumulate=*/true);
    at::Tensor own = at::full_like(self, 7);
    std::array<at::Tensor, 3> inputs = {self, index, source};
    kernel.Run(inputs, {&own, 1});
    if (!SameNumbers(own, expected)) return false;
  }
  return true;
}

Result<std::unique_ptr<Step>> MakeIndexAddStep(const RunPlan& plan, NodeId node,
                                               const IndexAddRun& add,
                                               std::shared_ptr<const GroupKernel> kernel) {
  HEDDLE_TRY(CompiledNodes aten, AtenBackend(plan).Compile(node));
  return std::unique_ptr<Step>(
      std::make_unique<IndexAddStep>(plan, node, add, std::move(kernel), std::move(aten.step)));
}

}  // namespace heddle::run
