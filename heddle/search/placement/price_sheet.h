// PriceSheet: the costs of calls and redistributions after lowering.
//
// Callers ask for prices first. Run makes a graph of all requests, lowers it with `localize`, and
// prices it with the cost model. So prices are exact to the nanosecond. Requests that become the
// same work on a rank share a line.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heddle/compile/shard/op_splits.h"
#include "heddle/compile/shard/redistribution_cache.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ir/graph.h"
#include "heddle/price/cost/cost_model.h"

namespace heddle::search {

class PriceSheet {
 public:
  // Index of a call.
  using Entry = uint32_t;

  // `graph` is global, without placements, and must outlive this object. Requests refer to its
  // nodes and types.
  PriceSheet(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh), search_(mesh) {
    parts_.symbols() = graph.types().symbols();
  }

  PlacementId Intern(const Placement& placement) { return placements_.Intern(placement); }
  const Placement& operator[](PlacementId id) const { return placements_[id]; }

  // Requests the prices of moving tensors of a type from one placement to each of the others.
  void AskMoves(TypeId type, compile::ReduceOrder order, PlacementId from,
                std::span<const PlacementId> to);
  // Requests the price of a node with this split.
  Entry AskCall(NodeId node, const compile::OpSplit& split);

  Status Run(const price::CostModel& model);
  // Number of distinct calls and steps of moves.
  size_t line_count() const { return lines_.size(); }
  // Returns the price of a call, after Run.
  Nanos Price(Entry entry) const { return prices_[entry]; }
  // Returns the prices of requested moves, after Run; infinite if unreachable.
  void MovePrices(TypeId type, compile::ReduceOrder order, PlacementId from,
                  std::span<const PlacementId> to, double* prices);

 private:
  // A node of the sheet's graph: a call, or a single step of a redistribution.
  struct Line {
    // The node of a call; invalid for a step.
    NodeId node = {};
    // Fields of a step.
    TypeId type = {};
    PlacementId from = {};
    PlacementId to = {};
    // Fields of a call.
    std::vector<PlacementId> operands = {};
    std::vector<PlacementId> results = {};
  };

  // A range of consecutive steps in way_steps_.
  struct Way {
    static constexpr uint32_t kUnknown = UINT32_MAX;
    static constexpr uint32_t kNone = UINT32_MAX - 1;
    uint32_t first = kUnknown;
    uint32_t count = 0;
  };
  // By source and target placement.
  using Ways = std::vector<std::vector<Way>>;

  Ways& WaysOf(TypeId type, compile::ReduceOrder order);
  Way& WayIn(Ways& ways, PlacementId from, PlacementId to);
  Way FindWay(TypeId type, PlacementId from, PlacementId to, compile::ReduceOrder order);
  const std::optional<compile::PlacementWord>& WordAt(PlacementId id);
  PlacementId InternWord(compile::PlacementWord word, size_t rank);
  uint32_t StepOf(PlacementId from, PlacementId to);
  TypeId PartOf(TypeId type, PlacementId placement);
  uint32_t AddLine(Line line);
  // Writes the properties that determine the price into `key_`.
  void NoteMove(const Line& line);
  void NoteCall(const Line& line);
  Graph MakeGraph();
  void Append(Graph& sheet, uint32_t line,
              const std::map<std::pair<TypeId, PlacementId>, ValueId>& inputs) const;

  const Graph& graph_;
  const Mesh& mesh_;
  PlacementTable placements_;
  compile::RedistributionCache search_;
  // By packed placement and number of dimensions.
  std::unordered_map<uint64_t, PlacementId> by_word_;
  // By placement; set on first use.
  std::vector<std::optional<std::optional<compile::PlacementWord>>> words_;
  // Tensors of many types have the same ways.
  std::map<std::pair<compile::ReduceOrder, Dims>, Ways> ways_;
  std::map<std::pair<TypeId, compile::ReduceOrder>, Ways*> ways_of_;
  static constexpr uint32_t kNone = UINT32_MAX;
  // Single steps; their indices by source and target; and the steps of all ways.
  std::vector<std::pair<PlacementId, PlacementId>> steps_;
  std::vector<std::vector<uint32_t>> step_of_;
  std::vector<uint32_t> way_steps_;
  // The intermediate placements of the last way.
  std::vector<compile::PlacementWord> stops_;
  std::vector<Line> lines_;
  // Lines by the work on a rank, and the key of the current one.
  CallTable<uint32_t> known_;
  CallKey key_;
  // Types of parts of tensors, by type and placement; set on first use.
  TypeTable parts_;
  std::map<TypeId, std::vector<std::optional<TypeId>>> part_of_;
  // By type and step: its line, if any.
  std::map<TypeId, std::vector<uint32_t>> line_of_;
  std::vector<Nanos> prices_;
};

}  // namespace heddle::search
