#include "heddle/compile/plan/plan.h"

#include <cmath>

#include "heddle/core/base/text.h"

namespace heddle::compile {

bool IsGradDivisor(double divisor) {
  return divisor > 0 && std::isfinite(divisor) && std::isnormal(1.0 / divisor);
}

Plan Plan::UpToLowering() const {
  Plan out = *this;
  out.decisions = {.reduce_first = decisions.reduce_first,
                   .expert_buffers = decisions.expert_buffers,
                   .stages = decisions.stages};
  return out;
}

std::string FormatPlan(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  std::string out = fmt::format("heddle plan 1\nmesh [{}]\n", Format(mesh));
  out += FormatDecisions(plan.decisions);
  if (plan.average) out += "grads average\n";
  if (plan.grad_divisor != 1.0) {
    out += "grads divide ";
    AppendFloat(out, plan.grad_divisor);
    out += '\n';
  }
  if (plan.narrow_grads) out += "data-grads narrow\n";
  if (plan.wide_tensor_grads) out += "tensor-grads wide\n";
  for (const PlanInput& input : plan.inputs) {
    out += fmt::format("input {} {}\n", Quoted(input.pattern),
                       FormatPlacement(input.placement, input.rank, mesh));
  }
  for (const PlanParam& param : plan.params) {
    out += fmt::format("param {} store {} compute {}", Quoted(param.pattern),
                       FormatPlacement(param.store, param.store_rank, mesh),
                       FormatPlacement(param.compute, param.compute_rank, mesh));
    out += param.unit.empty() ? "\n" : fmt::format(" unit {}\n", Quoted(param.unit));
  }
  for (const PlanModule& module : plan.modules) {
    out += fmt::format("module {}", Quoted(module.pattern));
    if (module.in)
      out += fmt::format(" in {}", FormatPlacement(module.in->placement, module.in->rank, mesh));
    if (module.out)
      out += fmt::format(" out {}", FormatPlacement(module.out->placement, module.out->rank, mesh));
    if (!module.local.empty()) out += fmt::format(" local [{}]", Format(mesh, module.local));
    if (!module.experts.empty()) out += fmt::format(" experts [{}]", Format(mesh, module.experts));
    if (module.expert_times != 0) out += fmt::format(" most {}", module.expert_times);
    if (!module.context.empty()) out += fmt::format(" context [{}]", Format(mesh, module.context));
    if (module.context_heads) out += " heads";
    if (module.context_ring) out += " ring";
    if (module.why != Why::kTensor) out += fmt::format(" why {}", Name(module.why));
    if (module.decomposes_log_softmax) out += " write-out";
    out += '\n';
  }
  for (const PlanNode& node : plan.nodes) {
    out += fmt::format("node {} {} {} {} in", Quoted(node.pattern), node.op, Name(node.phase),
                       node.number);
    for (const BoundaryPlacement& operand : node.operands)
      out += " " + FormatPlacement(operand.placement, operand.rank, mesh);
    out += " out";
    for (const BoundaryPlacement& result : node.results)
      out += " " + FormatPlacement(result.placement, result.rank, mesh);
    out += '\n';
  }
  if (plan.automatic) out += "auto\n";
  return out;
}

}  // namespace heddle::compile
