// CostTable: the costs of calls and redistributions after lowering.
//
// Callers ask for prices first. Run makes a graph of all requests, lowers it with `localize`, and
// prices it with the cost model. So prices are exact to the nanosecond. Requests that become the
// same work on a rank share a row.
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

class CostTable {
 public:
  // Index of a call.
  using CallId = uint32_t;

  // `graph` is global, without placements, and must outlive this object. Requests refer to its
  // nodes and types.
  CostTable(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh), search_(mesh) {
    parts_.symbols() = graph.types().symbols();
  }

  PlacementId Intern(const Placement& placement) { return placements_.Intern(placement); }
  const Placement& operator[](PlacementId id) const { return placements_[id]; }

  // Requests the prices of moving tensors of a type from one placement to each of the others.
  void RequestMoves(TypeId type, compile::ReduceOrder order, PlacementId from,
                    std::span<const PlacementId> to);
  // Requests the price of a node with this split.
  CallId RequestCall(NodeId node, const compile::OpSplit& split);

  Status Run(const price::CostModel& model);
  // Number of distinct calls and steps of moves.
  size_t row_count() const { return rows_.size(); }
  // Returns the price of a call, after Run.
  Nanos Price(CallId call) const { return prices_[call]; }
  // Returns the prices of requested moves, after Run; infinite if unreachable.
  void MovePrices(TypeId type, compile::ReduceOrder order, PlacementId from,
                  std::span<const PlacementId> to, double* prices);

 private:
  // A node of the graph's graph: a call, or a single step of a redistribution.
  struct Row {
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

  // A range of consecutive steps in path_steps_.
  struct Path {
    static constexpr uint32_t kUnknown = UINT32_MAX;
    static constexpr uint32_t kNone = UINT32_MAX - 1;
    uint32_t first = kUnknown;
    uint32_t count = 0;
  };
  // By source and target placement.
  using Paths = std::vector<std::vector<Path>>;

  Paths& PathsOf(TypeId type, compile::ReduceOrder order);
  Path& PathIn(Paths& paths, PlacementId from, PlacementId to);
  Path FindPath(TypeId type, PlacementId from, PlacementId to, compile::ReduceOrder order);
  const std::optional<compile::PackedPlacement>& PackedAt(PlacementId id);
  PlacementId InternPacked(compile::PackedPlacement packed, size_t rank);
  uint32_t StepOf(PlacementId from, PlacementId to);
  TypeId PartOf(TypeId type, PlacementId placement);
  uint32_t AddRow(Row row);
  // Writes the properties that determine the price into `key_`.
  void AddMoveKey(const Row& row);
  void AddCallKey(const Row& row);
  Graph MakeGraph();
  void Append(Graph& graph, uint32_t row,
              const std::map<std::pair<TypeId, PlacementId>, ValueId>& inputs) const;

  const Graph& graph_;
  const Mesh& mesh_;
  PlacementTable placements_;
  compile::RedistributionCache search_;
  // By packed placement and number of dimensions.
  std::unordered_map<uint64_t, PlacementId> by_packed_;
  // By placement; set on first use.
  std::vector<std::optional<std::optional<compile::PackedPlacement>>> packed_;
  // Tensors of many types have the same paths.
  std::map<std::pair<compile::ReduceOrder, Dims>, Paths> paths_;
  std::map<std::pair<TypeId, compile::ReduceOrder>, Paths*> paths_of_;
  static constexpr uint32_t kNone = UINT32_MAX;
  // Single steps; their indices by source and target; and the steps of all paths.
  std::vector<std::pair<PlacementId, PlacementId>> steps_;
  std::vector<std::vector<uint32_t>> step_of_;
  std::vector<uint32_t> path_steps_;
  // The intermediate placements of the last path.
  std::vector<compile::PackedPlacement> stops_;
  std::vector<Row> rows_;
  // Lines by the work on a rank, and the key of the current one.
  CallTable<uint32_t> known_;
  CallKey key_;
  // Types of parts of tensors, by type and placement; set on first use.
  TypeTable parts_;
  std::map<TypeId, std::vector<std::optional<TypeId>>> part_of_;
  // By type and step: its row, if any.
  std::map<TypeId, std::vector<uint32_t>> row_of_;
  std::vector<Nanos> prices_;
};

}  // namespace heddle::search
