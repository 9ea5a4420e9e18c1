#include "heddle/run/runtime/device/group_step.h"

#include <map>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>

#include "heddle/core/analysis/uses.h"
#include "heddle/core/kernel/element.h"
#include "heddle/core/kernel/group_finder.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/runtime/aten_backend.h"
#include "heddle/run/runtime/device/same_numbers.h"

namespace heddle::run {

bool IsPlain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

Result<std::unique_ptr<GroupStep>> GroupStep::Make(const RunPlan& plan, const KernelGroup& group,
                                                   GroupWork work) {
  std::unique_ptr<GroupStep> step(new GroupStep(plan, group, std::move(work)));
  AtenBackend aten(plan);
  std::set<NodeId> inside(group.nodes.begin(), group.nodes.end());
  Uses uses(plan.graph());
  std::vector<NodeId> all = group.repeated;
  all.insert(all.end(), group.nodes.begin(), group.nodes.end());
  for (NodeId node : all) {
    HEDDLE_TRY(CompiledNodes compiled, aten.Compile(node));
    step->nodes_.push_back(std::move(compiled.step));
  }
  for (NodeId node : group.nodes) {
    if (!IsFlatView(plan.graph(), node)) continue;
    // A view of a view needs the first view, too.
    std::vector<ValueId> open = {plan.graph()[node].first_result};
    bool read = false;
    while (!open.empty()) {
      ValueId value = open.back();
      open.pop_back();
      read = read || uses.is_output(value);
      for (const Use& use : uses.of(value)) {
        if (!inside.contains(use.node)) read = true;
        if (inside.contains(use.node) && IsFlatView(plan.graph(), use.node))
          open.push_back(plan.graph()[use.node].first_result);
      }
    }
    if (!read) continue;
    HEDDLE_TRY(CompiledNodes compiled, aten.Compile(node));
    step->views_.push_back(std::move(compiled.step));
  }
  return step;
}

void GroupStep::Run(size_t at, Tensors& values, Scratch& scratch) const {
  if (RunKernels(at, values, scratch)) return;
  for (const std::unique_ptr<Step>& node : nodes_) node->Run(at, values, scratch);
}

bool GroupStep::RunKernels(size_t at, Tensors& values, Scratch& scratch) const {
  const Graph& graph = plan_.graph();
  Tensors inputs;
  for (ValueId value : work_.inputs) {
    inputs.push_back(plan_.slots().TensorsOf(value, values)[0]);
    if (!IsPlain(inputs.back())) return false;
  }
  Tensors outputs;
  for (ValueId value : work_.outputs) {
    TypeId type = graph.type(value);
    std::span<const Dim> dims = graph.types().dims(type);
    outputs.push_back(at::empty({dims.data(), dims.size()}, inputs[0].options().dtype(ToScalarType(
                                                                graph.types().dtype(type)))));
  }
  work_.kernel->Run(inputs, outputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    plan_.slots().Set(work_.outputs[i], std::move(outputs[i]), values);
  if (work_.weight) {
    scratch.EndLaunch();
    RunWeightGradient(values);
  }
  for (const std::unique_ptr<Step>& view : views_) view->Run(at, values, scratch);
  return true;
}

void GroupStep::RunWeightGradient(Tensors& values) const {
  const NormWeightGradient& weight = *work_.weight;
  const Graph& graph = plan_.graph();
  auto rows = [&](ValueId value, int64_t width) {
    ValueId stored = SourceOf(graph, value);
    // The gradient is a result of the group, or an operand.
    const at::Tensor& own = plan_.slots().TensorsOf(value, values)[0];
    const at::Tensor& tensor = own.defined() ? own : plan_.slots().TensorsOf(stored, values)[0];
    return tensor.view({weight.rows, width});
  };
  Tensors inputs = {rows(weight.gradient, weight.width), rows(weight.input, weight.width),
                    rows(weight.rstd, 1)};
  at::Tensor result;
  if (work_.weight_kernel) {
    result = at::empty({weight.width}, inputs[0].options());
    work_.weight_kernel->Run(inputs, {&result, 1});
  } else {
    std::span<const ValueId> operands = graph.operands(group_.norm);
    const at::Tensor& scale = plan_.slots().TensorsOf(operands[3], values)[0];
    result = std::get<1>(at::_fused_rms_norm_backward(inputs[0], inputs[1], {weight.width},
                                                      inputs[2], scale, {false, true}));
  }
  plan_.slots().Set(weight.result, std::move(result), values);
}

Tensors GroupStep::ProofValues(bool special) const {
  const Graph& graph = plan_.graph();
  Tensors values = plan_.slots().Start({});
  std::vector<NodeId> nodes = group_.repeated;
  nodes.insert(nodes.end(), group_.nodes.begin(), group_.nodes.end());
  std::set<NodeId> inside(nodes.begin(), nodes.end());
  std::map<ValueId, at::Tensor> by_source;
  for (NodeId node : nodes) {
    for (ValueId operand : graph.operands(node)) {
      NodeId producer = graph[operand].producer;
      if (producer && inside.contains(producer)) continue;
      ValueId source = SourceOf(graph, operand);
      DType dtype = graph.types().dtype(graph.type(operand));
      at::Tensor& numbers = by_source[source];
      if (!numbers.defined())
        numbers = ProofNumbers(LanesOf(graph, source), dtype,
                               static_cast<int64_t>(by_source.size()), special, plan_.device());
      at::Tensor shaped = IsComplex(dtype) ? at::view_as_complex(numbers.view({-1, 2})) : numbers;
      std::span<const Dim> dims = graph.types().dims(graph.type(operand));
      plan_.slots().Set(operand, shaped.view({dims.data(), dims.size()}), values);
    }
  }
  return values;
}

bool GroupStep::IsProved() const {
  at::NoGradGuard no_grad;
  // A NaN in a sum over rows hides all other rows.
  return HasSameBits(/*special=*/false) && HasSameBits(/*special=*/true);
}

bool GroupStep::HasSameBits(bool special) const {
  Scratch scratch;
  Tensors expected = ProofValues(special);
  Tensors values = expected;
  for (const std::unique_ptr<Step>& node : nodes_) node->Run(0, expected, scratch);
  if (!RunKernels(0, values, scratch)) return false;
  std::vector<ValueId> results = work_.outputs;
  if (work_.weight) results.push_back(work_.weight->result);
  return std::ranges::all_of(results, [&](ValueId result) {
    return SameNumbers(plan_.slots().TensorsOf(result, values)[0],
                       plan_.slots().TensorsOf(result, expected)[0]);
  });
}

}  // namespace heddle::run
