// Kinds of collectives, and the properties of a kind that passes, prices and transports depend on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "heddle/core/ir/op.h"

namespace heddle {

enum class CollectiveKind : uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll, kShift };
// `all_gather`, as in the name of the op.
std::string_view Name(CollectiveKind kind);
std::optional<CollectiveKind> ParseCollectiveKind(std::string_view name);

// The kind of an op that moves data between ranks; none for any other op. Ops that move the rows of
// experts are all-to-alls.
std::optional<CollectiveKind> CollectiveKindOf(OpId op);
OpId OpOf(CollectiveKind kind);
// comm.dispatch and comm.combine: an all-to-all of parts whose sizes are known at run time only.
bool MovesRows(OpId op);

constexpr bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
}
inline bool Reduces(OpId op) {
  std::optional<CollectiveKind> kind = CollectiveKindOf(op);
  return kind && Reduces(*kind);
}
// Each rank sends a part to every rank of its group.
constexpr bool CutsInput(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
}

}  // namespace heddle
