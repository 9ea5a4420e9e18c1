// What there is to decide about a captured graph on a mesh, and what moves between decisions. No prices yet.
//
// A decision is about all nodes, or all parameters, that are alike: the same op at the same place of every layer. It follows what plans can
// say: a parameter has a placement in storage and one in which it is read, once for all readers (and cast in storage, if that
// narrows it); a gradient ends where its parameter is stored; every node has one of the splits of its loops, but for those that share a
// dimension among more ranks than it has elements.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/compile/shard/op_splits.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/search/solve/reduce/limit.h"

namespace heddle::search {

struct Decision {
  enum class Kind : uint8_t {
    // Everything that is whole on every rank: not a choice.
    kWhole,
    // A batch tensor.
    kInput,
    // A parameter as it is kept, with its gradient and its optimizer state; and as it is read.
    kStore,
    kCompute,
    kNode,
  };
  Kind kind = Kind::kWhole;
  // As a plan names it: a label, or a scope, perhaps a pattern.
  std::string pattern = {};
  // Numbers of inputs, or of nodes.
  std::vector<uint32_t> members = {};
  // A tensor lies as result 0 says.
  std::vector<compile::OpSplit> choices = {};
  // A user's statement says it.
  bool is_given = false;
};

// One place of a choice: an operand, or a result.
struct Slot {
  uint32_t decision = 0;
  bool is_result = false;
  uint32_t index = 0;
  auto operator<=>(const Slot&) const = default;
};
const Placement& At(const std::vector<Decision>& decisions, const Slot& slot, size_t choice);

// A tensor that lies at one slot and is wanted at others. Readers that want it in the same placement share it.
struct Move {
  Slot from;
  TypeId type;
  compile::ReduceOrder order = compile::ReduceOrder::kFewest;
  // Pending sums stay pending: gradients are reduced in the wide type.
  bool keeps_sums = false;
  // Sorted, each once.
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
  // How often each happens.
  std::map<Move, int64_t> moves;
  // An example, and how often.
  std::map<StoredCast, std::pair<NodeId, int64_t>> casts;
  // By node: its decision, or none where nothing is decided.
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> of_node;
  // By the number of a parameter: its storage. The decision behind it is how it is read.
  std::map<int64_t, uint32_t> of_param;
};

// Fails where there are too many choices, or more than the limit lets it list.
Result<Decisions> FindDecisions(const Graph& graph, const compile::Plan& plan,
                                const Limit& limit = {});

// What a user is told whose mesh has too many choices for the limit.
Failure TooManyChoices(const Mesh& mesh);

// Every way in which a tensor can be split; the first is whole.
std::vector<Placement> PlacementsOf(const Type& type, const Mesh& mesh);

}  // namespace heddle::search
