#include "heddle/core/ops/collectives.h"

#include <algorithm>
#include <iterator>

#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

constexpr std::string_view kCollectiveNames[] = {"all_gather", "reduce_scatter", "all_reduce",
                                                 "all_to_all", "shift"};
constexpr OpId kCollectiveOps[] = {op::comm_all_gather, op::comm_reduce_scatter,
                                   op::comm_all_reduce, op::comm_all_to_all, op::comm_shift};

}  // namespace

std::string_view Name(CollectiveKind kind) { return kCollectiveNames[static_cast<size_t>(kind)]; }

std::optional<CollectiveKind> ParseCollectiveKind(std::string_view name) {
  const auto* at = std::ranges::find(kCollectiveNames, name);
  if (at == std::end(kCollectiveNames)) return std::nullopt;
  return static_cast<CollectiveKind>(at - std::begin(kCollectiveNames));
}

OpId OpOf(CollectiveKind kind) { return kCollectiveOps[static_cast<size_t>(kind)]; }

bool MovesRows(OpId op) { return op == op::comm_dispatch || op == op::comm_combine; }

std::optional<CollectiveKind> CollectiveKindOf(OpId op) {
  if (MovesRows(op)) return CollectiveKind::kAllToAll;
  const auto* at = std::ranges::find(kCollectiveOps, op);
  if (at == std::end(kCollectiveOps)) return std::nullopt;
  return static_cast<CollectiveKind>(at - std::begin(kCollectiveOps));
}

}  // namespace heddle
