#include "heddle/run/runtime/device/optimizer_backend.h"

#include <ATen/ops/empty.h>

#include "heddle/core/kernel/weight_copies.h"
#include "heddle/run/runtime/aten_backend.h"
#include "heddle/run/runtime/device/group_step.h"

namespace heddle::run {
namespace {

class IdleStep : public Step {
 public:
  IdleStep() : Step(Turn::kAlone) {}
  void Run(size_t, Tensors&, Scratch&) const override {}
};

// Passes copies on as the results of casts, and runs another step.
class CopyStep : public Step {
 public:
  CopyStep(const RunPlan& plan, std::vector<std::pair<ValueId, int64_t>> results,
           std::shared_ptr<const WeightCopies> copies, std::unique_ptr<Step> rest)
      : Step(Turn::kAlone),
        plan_(plan),
        results_(std::move(results)),
        copies_(std::move(copies)),
        rest_(std::move(rest)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    for (const auto& [result, param] : results_)
      plan_.slots().Set(result, copies_->of_rank[at].at(param), values);
    rest_->Run(at, values, scratch);
  }

 private:
  const RunPlan& plan_;
  // The results of the casts, and their parameters.
  std::vector<std::pair<ValueId, int64_t>> results_;
  std::shared_ptr<const WeightCopies> copies_;
  std::unique_ptr<Step> rest_;
};

class NormStep : public Step {
 public:
  NormStep(const RunPlan& plan, std::vector<ValueId> inputs, ValueId result,
           std::unique_ptr<GroupKernel> kernel, std::vector<std::unique_ptr<Step>> nodes)
      : Step(Turn::kAlone),
        plan_(plan),
        inputs_(std::move(inputs)),
        result_(result),
        kernel_(std::move(kernel)),
        nodes_(std::move(nodes)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    Tensors inputs;
    for (ValueId value : inputs_) {
      inputs.push_back(plan_.slots().TensorsOf(value, values)[0]);
      // For vectors that are not aligned, ATen adds in another order.
      if (IsPlain(inputs.back())) continue;
      for (const std::unique_ptr<Step>& node : nodes_) node->Run(at, values, scratch);
      return;
    }
    at::Tensor squares =
        at::empty({static_cast<int64_t>(inputs.size())}, inputs[0].options().dtype(at::kFloat));
    kernel_->Run(inputs, {&squares, 1});
    plan_.slots().Set(result_, std::move(squares), values);
  }

 private:
  const RunPlan& plan_;
  std::vector<ValueId> inputs_;
  ValueId result_;
  std::unique_ptr<GroupKernel> kernel_;
  // Casts and the norm, run by ATen.
  std::vector<std::unique_ptr<Step>> nodes_;
};

class AdamWStep : public Step {
 public:
  // `copies` may be null.
  AdamWStep(const RunPlan& plan, AdamWRun run, std::shared_ptr<const WeightCopies> copies,
            std::unique_ptr<AdamWKernel> kernel, std::vector<std::unique_ptr<Step>> nodes)
      : Step(Turn::kAlone),
        plan_(plan),
        run_(std::move(run)),
        copies_(std::move(copies)),
        kernel_(std::move(kernel)),
        nodes_(std::move(nodes)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    auto tensor = [&](ValueId value) {
      return value ? plan_.slots().TensorsOf(value, values)[0] : at::Tensor();
    };
    std::vector<AdamWKernel::Update> updates;
    for (const AdamWRun::Update& u : run_.updates) {
      updates.push_back({tensor(u.param), tensor(u.grad).contiguous(), tensor(u.average),
                         tensor(u.square), CopyOf(at, u)});
      const AdamWKernel::Update& update = updates.back();
      // ATen updates state that is not contiguous.
      if (!update.param.is_contiguous() || !update.average.is_contiguous() ||
          !update.square.is_contiguous()) {
        for (const std::unique_ptr<Step>& node : nodes_) node->Run(at, values, scratch);
        for (const AdamWRun::Update& updated : run_.updates) {
          at::Tensor copy = CopyOf(at, updated);
          if (copy.defined()) copy.copy_(tensor(plan_.graph()[updated.node].first_result));
        }
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
  at::Tensor CopyOf(size_t at, const AdamWRun::Update& update) const {
    std::optional<int64_t> param = ParamOf(plan_.graph(), update.param);
    if (!copies_ || !param || !copies_->params->contains(*param)) return {};
    return copies_->of_rank[at].at(*param);
  }

  const RunPlan& plan_;
  AdamWRun run_;
  std::shared_ptr<const WeightCopies> copies_;
  std::unique_ptr<AdamWKernel> kernel_;
  // Casts of gradients and the nodes of the run, run by ATen.
  std::vector<std::unique_ptr<Step>> nodes_;
};

}  // namespace

std::unique_ptr<Step> MakeIdleStep() { return std::make_unique<IdleStep>(); }

OptimizerBackend::OptimizerBackend(const RunPlan& plan, const Uses& uses, Kernels& kernels,
                                   std::map<NodeId, int64_t> copied,
                                   std::shared_ptr<WeightCopies> copies)
    : plan_(plan),
      runs_(FindOptimizerRuns(plan.graph(), uses)),
      copied_(std::move(copied)),
      copies_(std::move(copies)) {
  for (auto& [first, run] : runs_.updates) {
    updates_[first] = kernels.AdamW(run);
    if (!updates_[first]) RefuseCopies(run);
  }
  for (NodeId node : runs_.norms) norms_[node] = kernels.SquaredNorm();
  // Nodes without a kernel read the results of casts.
  std::erase_if(runs_.updates, [&](const auto& run) { return updates_.at(run.first) == nullptr; });
  std::erase_if(runs_.norms, [&](NodeId node) { return norms_.at(node) == nullptr; });
  spared_ = SparedCasts(plan.graph(), uses, runs_);
}

void OptimizerBackend::RefuseCopies(const AdamWRun& run) {
  if (!copies_) return;
  for (const AdamWRun::Update& update : run.updates) {
    std::optional<int64_t> param = ParamOf(plan_.graph(), update.param);
    if (!param || copies_->params->erase(*param) == 0) continue;
    std::erase_if(copied_, [&](const auto& cast) { return cast.second == *param; });
  }
}

std::unique_ptr<Step> OptimizerBackend::MakeCopyStep(std::span<const NodeId> casts,
                                                     std::unique_ptr<Step> rest) const {
  std::vector<std::pair<ValueId, int64_t>> results;
  for (NodeId cast : casts)
    results.emplace_back(plan_.graph()[cast].first_result, copied_.at(cast));
  return std::make_unique<CopyStep>(plan_, std::move(results), copies_, std::move(rest));
}

Result<CompiledNodes> OptimizerBackend::Compile(NodeId first) {
  if (spared_.contains(first)) return CompiledNodes{MakeIdleStep()};
  if (copied_.contains(first)) return CompiledNodes{MakeCopyStep({&first, 1}, MakeIdleStep())};
  if (runs_.norms.contains(first)) return CompileNorm(first);
  if (runs_.updates.contains(first)) return CompileUpdates(first);
  return CompiledNodes{};
}

std::vector<NodeId> OptimizerBackend::CastsOf(std::span<const ValueId> values) const {
  std::vector<NodeId> casts;
  for (ValueId value : values) {
    NodeId producer = plan_.graph()[value].producer;
    if (producer && spared_.contains(producer)) casts.push_back(producer);
  }
  return casts;
}

Result<CompiledNodes> OptimizerBackend::CompileNorm(NodeId node) {
  const Graph& graph = plan_.graph();
  std::vector<NodeId> nodes = CastsOf(graph.operands(node));
  nodes.push_back(node);
  HEDDLE_TRY(std::vector<std::unique_ptr<Step>> steps, CompileWithAten(plan_, nodes));
  std::vector<ValueId> inputs;
  for (ValueId value : graph.operands(node)) inputs.push_back(BeforeCast(graph, spared_, value));
  return CompiledNodes{std::make_unique<NormStep>(plan_, std::move(inputs),
                                                  graph[node].first_result,
                                                  std::move(norms_.at(node)), std::move(steps))};
}

Result<CompiledNodes> OptimizerBackend::CompileUpdates(NodeId first) {
  AdamWRun run = runs_.updates.at(first);
  std::vector<ValueId> grads;
  for (const AdamWRun::Update& update : run.updates) grads.push_back(update.grad);
  std::vector<NodeId> nodes = CastsOf(grads);
  for (size_t i = 0; i < run.count; ++i) nodes.emplace_back(first.index() + i);
  HEDDLE_TRY(std::vector<std::unique_ptr<Step>> steps, CompileWithAten(plan_, nodes));
  for (AdamWRun::Update& update : run.updates)
    update.grad = BeforeCast(plan_.graph(), spared_, update.grad);
  size_t count = run.count;
  return CompiledNodes{std::make_unique<AdamWStep>(plan_, std::move(run), copies_,
                                                   std::move(updates_.at(first)), std::move(steps)),
                       count};
}

}  // namespace heddle::run
