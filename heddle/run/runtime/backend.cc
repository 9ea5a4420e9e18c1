#include "heddle/run/runtime/backend.h"

#include "heddle/run/runtime/fault.h"

namespace heddle::run {

RunPlan::RunPlan(Module module, const Liveness& liveness, std::vector<int64_t> ranks,
                 c10::Device device)
    : module_(std::move(module)),
      slots_(graph(), liveness),
      ranks_(std::move(ranks)),
      device_(device),
      updated_(graph().inputs().size(), false),
      written_over_(graph().node_count(), false) {
  std::vector<bool> storages(liveness.storages().size(), false);
  for (NodeId node : graph().nodes()) {
    if (graph().op(node).effect() != Effect::kUpdate) continue;
    // A result that takes over an operand has the operand's storage.
    for (ValueId v : graph().results(node)) storages[liveness.of(v).index()] = true;
  }
  for (size_t i = 0; i < graph().inputs().size(); ++i)
    updated_[i] = storages[liveness.of(graph().inputs()[i].value).index()];
  for (StorageId id : liveness.storages().ids()) {
    NodeId birth = liveness.storages()[id].birth;
    if (birth && storages[id.index()]) written_over_[birth] = true;
  }
}

std::string RunPlan::Where(std::span<const int64_t> ranks) const {
  if (mesh().ranks() == 1) return "";
  std::string where = ranks.size() == 1 ? "rank " : "ranks ";
  for (int64_t rank : ranks) where += fmt::format("{}{}", rank == ranks[0] ? "" : ", ", rank);
  return where + ": ";
}

Failure RunPlan::Fault(NodeId node, std::span<const int64_t> ranks,
                       std::span<const Tensors> operands, std::string_view what) const {
  std::string lines;
  bool alone = mesh().ranks() == 1;
  for (size_t m = 0; m < operands.size(); ++m)
    lines += OperandLines(operands[m], alone ? "" : fmt::format(" of rank {}", ranks[m]));
  return RunFault(module_, graph(), node, Where(ranks), what, lines);
}

void Step::Run(size_t, Tensors&, Scratch&) const {
  HEDDLE_CHECK(false, "a step of all ranks was run by a single rank");
}

Status Step::RunTogether(Running&) const {
  HEDDLE_CHECK(false, "a step of a single rank was run by all ranks");
  return Done{};
}

}  // namespace heddle::run
