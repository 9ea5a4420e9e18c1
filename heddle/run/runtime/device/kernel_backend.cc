#include "heddle/run/runtime/device/kernel_backend.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_forward.h>

#include "heddle/core/kernel/weight_copies.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/aten/error_message.h"
#include "heddle/run/runtime/aten_backend.h"
#include "heddle/run/runtime/device/group_step.h"
#include "heddle/run/runtime/device/index_add.h"
#include "heddle/run/runtime/device/matmuls.h"
#include "heddle/run/runtime/device/optimizer_backend.h"

namespace heddle::run {
namespace {

class LossStep : public Step {
 public:
  LossStep(const RunPlan& plan, LossRun run, std::unique_ptr<LossKernel> kernel)
      : Step(Turn::kAlone), plan_(plan), run_(run), kernel_(std::move(kernel)) {}

  void Run(size_t, Tensors& values, Scratch&) const override {
    const Graph& graph = plan_.graph();
    auto tensor = [&](ValueId value) { return plan_.slots().TensorsOf(value, values)[0]; };
    at::Tensor logits = tensor(run_.logits).contiguous();
    at::TensorOptions options = logits.options();
    at::Tensor gradient = run_.in_place ? logits : at::empty_like(logits);
    at::Tensor picked = at::empty({run_.rows}, options.dtype(at::kFloat));
    at::Tensor kinds = at::empty({run_.rows}, options.dtype(at::kLong));
    kernel_->Run(logits, gradient, tensor(run_.labels).contiguous(), picked, kinds,
                 tensor(run_.scale));
    // ATen adds rows with one class in the same order as rows with many.
    auto [sum, weight] = at::nll_loss_forward(picked.view({run_.rows, 1}), kinds, {},
                                              at::Reduction::Sum, run_.ignored);
    plan_.slots().Set(graph[run_.forward].first_result, std::move(sum), values);
    ValueId result = graph[run_.gradient].first_result;
    std::span<const Dim> dims = graph.types().dims(graph.type(result));
    plan_.slots().Set(result, gradient.view({dims.data(), dims.size()}), values);
  }

 private:
  const RunPlan& plan_;
  LossRun run_;
  std::unique_ptr<LossKernel> kernel_;
};

// The steps of groups, by first node.
using GroupSteps = std::map<NodeId, std::pair<std::unique_ptr<Step>, size_t>>;

// Compiles and proves the kernels of all groups. If one is rejected, its nodes run through ATen,
// and other groups must store the values that it reads.
class GroupCompiler {
 public:
  GroupCompiler(const RunPlan& plan, const Uses& uses, std::vector<KernelGroup> groups,
                Kernels& kernels, const OptimizerBackend& optimizer)
      : plan_(plan),
        uses_(uses),
        groups_(std::move(groups)),
        kernels_(kernels),
        optimizer_(optimizer) {}

  GroupSteps Compile() {
    while (true) {
      GroupSteps steps;
      size_t refused = groups_.size();
      for (size_t g = 0; g < groups_.size() && refused == groups_.size(); ++g) {
        std::unique_ptr<Step> step = CompileGroup(g);
        if (!step) refused = g;
        steps[groups_[g].nodes.front()] = {std::move(step), groups_[g].nodes.size()};
      }
      if (refused == groups_.size()) return steps;
      groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(refused));
    }
  }

 private:
  std::unique_ptr<Step> CompileGroup(size_t g) {
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
        std::string key = fmt::format("{}with norm_weight of {} rows", program.text, weight.rows);
        if (auto step = Proved("norm_weight", key, group, std::move(work))) return step;
      }
    }
    return Proved(program.name, program.text, group, std::move(with_aten));
  }

  std::unique_ptr<Step> CompileCasts(KernelGroup group) {
    std::vector<NodeId> copied;
    std::erase_if(group.nodes, [&](NodeId node) {
      bool has_copy = optimizer_.copied().contains(node);
      if (has_copy) copied.push_back(node);
      return has_copy || optimizer_.spared().contains(node);
    });
    std::unique_ptr<Step> rest = group.nodes.empty() ? MakeIdleStep() : CompileRunningCasts(group);
    if (copied.empty() || !rest) return rest;
    return optimizer_.MakeCopyStep(copied, std::move(rest));
  }

  std::unique_ptr<Step> CompileRunningCasts(const KernelGroup& group) {
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

  std::unique_ptr<Step> Proved(const std::string& name, const std::string& text,
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
  const OptimizerBackend& optimizer_;
};

class KernelBackend : public Backend {
 public:
  KernelBackend(const RunPlan& plan, const std::vector<KernelGroup>& groups,
                const std::map<NodeId, int64_t>& copied, std::shared_ptr<WeightCopies> copies,
                Kernels& kernels)
      : plan_(plan),
        kernels_(kernels),
        uses_(plan.graph()),
        liveness_(plan.graph()),
        optimizer_(plan, uses_, kernels, copied, std::move(copies)),
        groups_(GroupCompiler(plan, uses_, groups, kernels, optimizer_).Compile()) {}

  Result<CompiledNodes> Compile(NodeId first) override {
    if (std::optional<LossRun> loss = FindLossRun(plan_.graph(), uses_, liveness_, first))
      return CompileLoss(*loss);
    if (auto group = groups_.find(first); group != groups_.end() && group->second.first)
      return CompiledNodes{std::move(group->second.first), group->second.second};
    if (std::optional<MatmulShape> shape = MatmulShapeOf(plan_.graph(), first))
      return CompileMatmul(first, *shape);
    if (std::optional<IndexAddRun> add = FindIndexAddRun(plan_.graph(), first))
      return CompileIndexAdd(first, *add);
    return optimizer_.Compile(first);
  }

 private:
  Result<CompiledNodes> CompileMatmul(NodeId node, const MatmulShape& shape) {
    std::shared_ptr<const GroupKernel> kernel = kernels_.Matmul(shape);
    if (!kernel) return CompiledNodes{};
    HEDDLE_TRY(std::unique_ptr<Step> step, MakeMatmulStep(plan_, node, shape, std::move(kernel)));
    return CompiledNodes{std::move(step)};
  }

  Result<CompiledNodes> CompileIndexAdd(NodeId node, const IndexAddRun& add) {
    std::shared_ptr<const GroupKernel> kernel = kernels_.IndexAdd(add);
    if (!kernel) return CompiledNodes{};
    HEDDLE_TRY(std::unique_ptr<Step> step, MakeIndexAddStep(plan_, node, add, std::move(kernel)));
    return CompiledNodes{std::move(step)};
  }

  CompiledNodes CompileLoss(const LossRun& run) {
    std::unique_ptr<LossKernel> kernel = kernels_.Loss(run);
    if (!kernel) return {};
    return {std::make_unique<LossStep>(plan_, run, std::move(kernel)), run.count};
  }

  const RunPlan& plan_;
  Kernels& kernels_;
  Uses uses_;
  Liveness liveness_;
  OptimizerBackend optimizer_;
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
    Refuse(name, AtenErrorMessage(error));
  }
  return proof->second;
}

ArrangedKernels ArrangeKernels(const Graph& graph, Kernels& kernels,
                               const std::shared_ptr<WeightCopies>& copies) {
  ArrangedGraph arranged = ArrangeStep(graph, copies ? copies->params : std::set<int64_t>());
  if (copies && !copies->params) copies->params = CopiedParams(arranged);
  return {std::move(arranged.graph),
          [groups = std::move(arranged.groups), copied = std::move(arranged.copied), copies,
           &kernels](const RunPlan& plan) {
            return std::make_unique<KernelBackend>(plan, groups, copied, copies, kernels);
          }};
}

}  // namespace heddle::run
