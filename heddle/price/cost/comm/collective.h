// Kinds of collectives, and the sizes that models go by.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/op.h"

namespace heddle::price {

enum class CollectiveKind : uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll };
// `all_gather`, as in the name of the op.
std::string_view Name(CollectiveKind kind);
std::optional<CollectiveKind> ParseCollectiveKind(std::string_view name);
// Of an op that moves data between ranks; nothing for any other.
std::optional<CollectiveKind> CollectiveKindOf(OpId op);

// The bytes that NCCL goes by: what an all-gather gives, what any other is given. `given` is what one rank hands in.
Bytes CountedBytes(CollectiveKind kind, Bytes given, int64_t ranks);

}  // namespace heddle::price
