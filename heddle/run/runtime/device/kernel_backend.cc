#include "heddle/run/runtime/device/kernel_backend.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_forward.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/aten/said.h"
#include "heddle/run/runtime/aten_backend.h"
#include "heddle/run/runtime/device/group_step.h"

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

// The steps of groups, by first node.
using GroupSteps = std::map<NodeId, std::pair<std::unique_ptr<GroupStep>, size_t>>;

// Compiles and proves the kernels of all groups. Where one is refused, its nodes run through ATen,
// and other groups have to store what it reads.
class GroupCompiler {
 public:
  GroupCompiler(const RunPlan& plan, const Uses& uses, std::vector<KernelGroup> groups,
                Kernels& kernels)
      : plan_(plan), uses_(uses), groups_(std::move(groups)), kernels_(kernels) {}

  GroupSteps Compile() {
    while (true) {
      GroupSteps steps;
      size_t refused = groups_.size();
      for (size_t g = 0; g < groups_.size() && refused == groups_.size(); ++g) {
        std::unique_ptr<GroupStep> step = CompileGroup(g);
        if (!step) refused = g;
        steps[groups_[g].nodes.front()] = {std::move(step), groups_[g].nodes.size()};
      }
      if (refused == groups_.size()) return steps;
      groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(refused));
    }
  }

 private:
  std::unique_ptr<GroupStep> CompileGroup(size_t g) {
    if (groups_[g].form == KernelGroup::Form::kCasts) return CompileCasts(groups_[g]);
    const Graph& graph = plan_.graph();
    const KernelGroup& group = groups_[g];
    GroupProgram written = WriteGroupProgram(graph, uses_, groups_, g);
    const KernelProgram& program = written.program;
    GroupWork work;
    work.weight = written.weight;
    work.kernel = kernels_.Program(program);
    if (!work.kernel) return nullptr;
    work.inputs = program.inputs;
    work.outputs = program.outputs;
    if (!work.weight) return Proved(program.name, program.text, group, std::move(work));
    const NormWeightGradient& weight = *work.weight;
    DType dtype = graph.types().dtype(graph.type(weight.result));
    // ATen adds in another order for other numbers of rows.
    GroupWork with_aten = work;
    if (weight.rows % 256 == 0 && weight.width % 64 == 0) {
      work.weight_kernel = kernels_.NormWeight(weight.width, dtype);
      if (work.weight_kernel) {
        std::string key = fmt::format("{}with norm_weight", program.text);
        if (auto step = Proved("norm_weight", key, group, std::move(work))) return step;
      }
    }
    return Proved(program.name, program.text, group, std::move(with_aten));
  }

  std::unique_ptr<GroupStep> CompileCasts(const KernelGroup& group) {
    const Graph& graph = plan_.graph();
    GroupWork work;
    for (NodeId node : group.nodes) {
      work.inputs.push_back(graph.operands(node)[0]);
      work.outputs.push_back(graph[node].first_result);
    }
    DType from = graph.types().dtype(graph.type(work.inputs[0]));
    work.kernel = kernels_.Casts(from);
    return work.kernel
               ? Proved("casts", fmt::format("casts from {}", Name(from)), group, std::move(work))
               : nullptr;
  }

  std::unique_ptr<GroupStep> Proved(const std::string& name, const std::string& text,
                                    const KernelGroup& group, GroupWork work) {
    Result<std::unique_ptr<GroupStep>> step = GroupStep::Make(plan_, group, std::move(work));
    if (!step.ok()) return nullptr;
    return kernels_.IsProved(name, text, [&] { return (*step)->IsProved(); }) ? *std::move(step)
                                                                              : nullptr;
  }

  const RunPlan& plan_;
  const Uses& uses_;
  std::vector<KernelGroup> groups_;
  Kernels& kernels_;
};

class KernelBackend : public Backend {
 public:
  KernelBackend(const RunPlan& plan, const std::vector<KernelGroup>& groups, Kernels& kernels)
      : plan_(plan),
        kernels_(kernels),
        uses_(plan.graph()),
        liveness_(plan.graph()),
        groups_(GroupCompiler(plan, uses_, groups, kernels).Compile()) {}

  Result<CompiledNodes> Compile(NodeId first) override {
    if (std::optional<LossRun> loss = FindLossRun(plan_.graph(), uses_, liveness_, first))
      return CompileLoss(*std::move(loss));
    if (std::optional<AdamWRun> adamw = FindAdamWRun(plan_.graph(), uses_, first))
      return CompileAdamW(first, *std::move(adamw));
    if (auto group = groups_.find(first); group != groups_.end() && group->second.first)
      return CompiledNodes{std::move(group->second.first), group->second.second};
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
  GroupSteps groups_;
};

}  // namespace

bool Kernels::IsProved(const std::string& name, const std::string& text,
                       const std::function<bool()>& prove) {
  auto [proof, is_new] = proofs_.try_emplace(text, false);
  if (!is_new) return proof->second;
  try {
    proof->second = prove();
    if (!proof->second) Refuse(name, "its bits are not those of ATen on this GPU");
  } catch (const std::exception& error) {
    Refuse(name, SaidByAten(error));
  }
  return proof->second;
}

ArrangedKernels ArrangeKernels(const Graph& graph, Kernels& kernels) {
  ArrangedGraph arranged = ArrangeForKernels(graph, NodesOfLosses(graph));
  return {std::move(arranged.graph),
          [groups = std::move(arranged.groups), &kernels](const RunPlan& plan) {
            return std::make_unique<KernelBackend>(plan, groups, kernels);
          }};
}

}  // namespace heddle::run
