#include "heddle/passes/parallel/plan.h"

#include "heddle/base/text.h"
#include "heddle/passes/parallel/redistribution.h"

namespace heddle {

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  // Positions to go back to when what follows the last star does not fit.
  size_t star = std::string_view::npos;
  size_t mark = 0;
  bool dots = false;
  size_t p = 0;
  size_t n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      dots = p + 1 < pattern.size() && pattern[p + 1] == '*';
      p += dots ? 2 : 1;
      star = p;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos && (dots || name[mark] != '.')) {
      p = star;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string FormatPlan(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  std::string out = fmt::format("heddle plan 1\nmesh [{}]\n", Format(mesh));
  if (plan.average) out += "grads average\n";
  if (plan.grad_divisor != 1.0) {
    out += "grads divide ";
    AppendFloat(out, plan.grad_divisor);
    out += '\n';
  }
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
    if (module.why != Why::kTensor) out += fmt::format(" why {}", Name(module.why));
    if (module.write_out) out += " write-out";
    out += '\n';
  }
  return out;
}

}  // namespace heddle
