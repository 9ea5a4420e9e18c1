// The decisions about a captured graph on a mesh, and the moves of tensors between them, without
// prices.
//
// A decision covers all nodes, or all parameters, of a group (repeat_groups.h). It has the choices
// of plans:
//
// - A parameter has a placement in storage, and one for all its readers (and is cast in storage, if
//   that narrows it).
// - A gradient ends in the placement of its parameter's storage.
// - A node has one of the splits of its loops, except splits over more ranks than elements.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/op_splits.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/search/solve/reduce/work_limit.h"

namespace heddle::search {

struct Decision {
  enum class Kind : uint8_t {
    // All tensors that are replicated: no choice.
    kWhole,
    // A batch tensor.
    kInput,
    // A parameter in storage, with its gradient and optimizer state; and for its readers.
    kStore,
    kCompute,
    kNode,
  };
  Kind kind = Kind::kWhole;
  // The name in a plan: a label or a scope, perhaps a pattern.
  std::string pattern = {};
  // Indices of inputs, or of nodes.
  std::vector<uint32_t> members = {};
  // For tensors, result 0 is the placement.
  std::vector<compile::OpSplit> choices = {};
  // A statement of the user fixes it.
  bool is_given = false;
};

// An operand or a result of a decision.
struct Slot {
  uint32_t decision = 0;
  bool is_result = false;
  uint32_t index = 0;
  auto operator<=>(const Slot&) const = default;
};
const Placement& At(const std::vector<Decision>& decisions, const Slot& slot, size_t choice);

// A tensor at one slot that other slots read. Readers that want the same placement share the move.
struct Move {
  Slot from;
  TypeId type;
  compile::ReduceOrder order = compile::ReduceOrder::kFewest;
  // Pending sums remain pending: gradients are reduced in the wide type.
  bool keeps_sums = false;
  // Sorted and unique.
  std::vector<Slot> to = {};
  auto operator<=>(const Move&) const = default;
};

// A parameter that is cast in its storage.
struct StoredCast {
  uint32_t decision = 0;
  TypeId from;
  TypeId to;
  auto operator<=>(const StoredCast&) const = default;
};

struct Decisions {
  std::vector<Decision> all;
  // The number of occurrences of each.
  std::map<Move, int64_t> moves;
  // An example, and the number of occurrences.
  std::map<StoredCast, std::pair<NodeId, int64_t>> casts;
  // By node: its decision, or kNone.
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> of_node;
  // By the index of a parameter: its storage. The next decision is its placement for readers.
  std::map<int64_t, uint32_t> of_param;
};

// Fails if there are too many choices, or more than the limit allows to list.
Result<Decisions> FindDecisions(const Graph& graph, const compile::Plan& plan,
                                const WorkLimit& limit = {});

// The error for a mesh with too many choices for the limit.
Failure TooManyChoices(const Mesh& mesh);

// Returns every split of a tensor; the first is replicated.
std::vector<Placement> PlacementsOf(const Type& type, const Mesh& mesh);

}  // namespace heddle::search
