#include "heddle/run/runtime/device/kernel_backend.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_forward.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/runtime/aten_backend.h"

namespace heddle::run {
namespace {

using Steps = std::vector<std::unique_ptr<Step>>;

Result<Steps> CompileWithAten(const RunPlan& plan, std::span<const NodeId> nodes) {
  AtenBackend aten(plan);
  Steps steps;
  for (NodeId node : nodes) {
    HEDDLE_TRY(CompiledNodes compiled, aten.Compile(node));
    steps.push_back(std::move(compiled.step));
  }
  return steps;
}

class LossStep : public Step {
 public:
  LossStep(const RunPlan& plan, LossRun run, std::unique_ptr<LossKernel> kernel, Steps before,
           Steps after)
      : Step(Turn::kAlone),
        plan_(plan),
        run_(std::move(run)),
        kernel_(std::move(kernel)),
        before_(std::move(before)),
        after_(std::move(after)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    const Graph& graph = plan_.graph();
    auto tensor = [&](ValueId value) { return plan_.slots().TensorsOf(value, values)[0]; };
    at::TensorOptions options = tensor(run_.logits).options();
    for (ValueId value : run_.shapes) {
      TypeId type = graph.type(value);
      std::span<const Dim> dims = graph.types().dims(type);
      at::ScalarType element = ToScalarType(graph.types().dtype(type));
      plan_.slots().Set(value, at::empty({dims.data(), dims.size()}, options.dtype(element)),
                        values);
    }
    for (const std::unique_ptr<Step>& step : before_) step->Run(at, values, scratch);
    at::Tensor logits = tensor(run_.logits).contiguous();
    at::Tensor gradient = run_.in_place ? logits : at::empty_like(logits);
    at::Tensor picked = at::empty({run_.rows}, options.dtype(at::kFloat));
    at::Tensor kinds = at::empty({run_.rows}, options.dtype(at::kLong));
    kernel_->Run(logits, gradient, tensor(run_.labels).contiguous(), picked, kinds,
                 tensor(run_.scale));
    // ATen adds rows of one class in the order of rows of many.
    auto [sum, weight] = at::nll_loss_forward(picked.view({run_.rows, 1}), kinds, {},
                                              at::Reduction::Sum, run_.ignored);
    ValueId loss = graph[run_.forward].first_result;
    plan_.slots().Set(loss, std::move(sum), values);
    for (const std::unique_ptr<Step>& step : after_) step->Run(at, values, scratch);
    ValueId result = graph[run_.gradient].first_result;
    std::span<const Dim> dims = graph.types().dims(graph.type(result));
    plan_.slots().Set(result, gradient.view({dims.data(), dims.size()}), values);
  }

 private:
  const RunPlan& plan_;
  LossRun run_;
  std::unique_ptr<LossKernel> kernel_;
  Steps before_;
  Steps after_;
};

class AdamWStep : public Step {
 public:
  AdamWStep(const RunPlan& plan, AdamWRun run, std::unique_ptr<AdamWKernel> kernel, Steps nodes)
      : Step(Turn::kAlone),
        plan_(plan),
        run_(std::move(run)),
        kernel_(std::move(kernel)),
        nodes_(std::move(nodes)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    auto tensor = [&](ValueId value) {
      return value ? plan_.slots().TensorsOf(value, values)[0] : at::Tensor();
    };
    std::vector<AdamWKernel::Update> updates;
    for (const AdamWRun::Update& u : run_.updates) {
      updates.push_back(
          {tensor(u.param), tensor(u.grad).contiguous(), tensor(u.average), tensor(u.square)});
      const AdamWKernel::Update& update = updates.back();
      // State that is not laid out row by row is ATen's affair.
      if (!update.param.is_contiguous() || !update.average.is_contiguous() ||
          !update.square.is_contiguous()) {
        for (const std::unique_ptr<Step>& node : nodes_) node->Run(at, values, scratch);
        return;
      }
    }
    kernel_->Run(updates, tensor(run_.lr), tensor(run_.step), tensor(run_.clip));
    for (size_t i = 0; i < updates.size(); ++i) {
      uint32_t first = plan_.graph()[run_.updates[i].node].first_result.index();
      plan_.slots().Set(ValueId(first), std::move(updates[i].param), values);
      plan_.slots().Set(ValueId(first + 2), std::move(updates[i].average), values);
      plan_.slots().Set(ValueId(first + 3), std::move(updates[i].square), values);
    }
  }

 private:
  const RunPlan& plan_;
  AdamWRun run_;
  std::unique_ptr<AdamWKernel> kernel_;
  // The nodes of the run as ATen runs them.
  Steps nodes_;
};

class KernelBackend : public Backend {
 public:
  KernelBackend(const RunPlan& plan, Kernels& kernels)
      : plan_(plan), kernels_(kernels), uses_(plan.graph()), liveness_(plan.graph()) {}

  Result<CompiledNodes> Compile(NodeId first) override {
    if (std::optional<LossRun> loss = FindLossRun(plan_.graph(), uses_, liveness_, first))
      return CompileLoss(*std::move(loss));
    if (std::optional<AdamWRun> adamw = FindAdamWRun(plan_.graph(), uses_, first))
      return CompileAdamW(first, *std::move(adamw));
    return CompiledNodes{};
  }

 private:
  Result<CompiledNodes> CompileLoss(LossRun run) {
    std::unique_ptr<LossKernel> kernel = kernels_.Loss(run);
    if (!kernel) return CompiledNodes{};
    HEDDLE_TRY(Steps before, CompileWithAten(plan_, run.before));
    HEDDLE_TRY(Steps after, CompileWithAten(plan_, run.after));
    size_t count = run.count;
    return CompiledNodes{std::make_unique<LossStep>(plan_, std::move(run), std::move(kernel),
                                                    std::move(before), std::move(after)),
                         count};
  }

  Result<CompiledNodes> CompileAdamW(NodeId first, AdamWRun run) {
    std::unique_ptr<AdamWKernel> kernel = kernels_.AdamW(run);
    if (!kernel) return CompiledNodes{};
    std::vector<NodeId> nodes;
    for (size_t i = 0; i < run.count; ++i) nodes.emplace_back(first.index() + i);
    HEDDLE_TRY(Steps steps, CompileWithAten(plan_, nodes));
    size_t count = run.count;
    return CompiledNodes{
        std::make_unique<AdamWStep>(plan_, std::move(run), std::move(kernel), std::move(steps)),
        count};
  }

  const RunPlan& plan_;
  Kernels& kernels_;
  Uses uses_;
  Liveness liveness_;
};

}  // namespace

std::unique_ptr<Backend> MakeKernelBackend(const RunPlan& plan, Kernels& kernels) {
  return std::make_unique<KernelBackend>(plan, kernels);
}

}  // namespace heddle::run
