#include "heddle/price/cost/comm/collective.h"

#include <algorithm>
#include <iterator>

#include "heddle/core/ops/ops.h"

namespace heddle::price {
namespace {
constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"};
}

std::string_view Name(CollectiveKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<CollectiveKind> ParseCollectiveKind(std::string_view name) {
  const auto* at = std::ranges::find(kNames, name);
  if (at == std::end(kNames)) return std::nullopt;
  return static_cast<CollectiveKind>(at - std::begin(kNames));
}

std::optional<CollectiveKind> CollectiveKindOf(OpId op) {
  if (op == op::comm_all_gather) return CollectiveKind::kAllGather;
  if (op == op::comm_reduce_scatter) return CollectiveKind::kReduceScatter;
  if (op == op::comm_all_reduce) return CollectiveKind::kAllReduce;
  if (op == op::comm_all_to_all || op == op::comm_dispatch || op == op::comm_combine)
    return CollectiveKind::kAllToAll;
  return std::nullopt;
}

Bytes CountedBytes(CollectiveKind kind, Bytes given, int64_t ranks) {
  return kind == CollectiveKind::kAllGather ? given * ranks : given;
}

}  // namespace heddle::price
