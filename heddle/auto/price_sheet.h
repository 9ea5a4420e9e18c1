// PriceSheet: what calls and redistributions will cost once they are lowered.
//
// Whoever has a question writes it on the sheet. Run makes a graph of all of them, lets `localize` turn it into what a rank runs, and has the
// cost model price it: so a price is what will be paid, to the nanosecond. Equal questions are one.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "heddle/cost/cost_model.h"
#include "heddle/ir/graph.h"
#include "heddle/shard/op_splits.h"
#include "heddle/shard/redistribution.h"

namespace heddle {

class PriceSheet {
 public:
  // A question, by number.
  using Entry = uint32_t;

  // About nodes and types of `graph`, which is global, without placements, and outlives this.
  PriceSheet(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh), ways_(mesh) {}

  PlacementId Intern(const Placement& placement) { return placements_.Intern(placement); }
  const Placement& operator[](PlacementId id) const { return placements_[id]; }

  // A tensor of this type moves; nothing if no steps lead there.
  std::optional<Entry> AskMove(TypeId type, PlacementId from, PlacementId to, ReduceOrder order);
  // A node works on parts.
  Entry AskCall(NodeId node, const OpSplit& split);

  Status Run(const CostModel& model);
  // After Run.
  Nanos Price(Entry entry) const;

 private:
  // What becomes one node of the sheet's graph: a call, or a single step of a redistribution.
  struct Line {
    // None for a step.
    NodeId node;
    // Of a step.
    TypeId type;
    std::vector<PlacementId> operands;
    std::vector<PlacementId> results;
  };

  std::vector<uint32_t> StepsOf(TypeId type, PlacementId from,
                                const std::vector<RedistributionStep>& steps);
  Graph MakeGraph();
  void Append(Graph& sheet, uint32_t line,
              const std::map<std::pair<TypeId, PlacementId>, ValueId>& inputs) const;

  const Graph& graph_;
  const Mesh& mesh_;
  PlacementTable placements_;
  RedistributionCache ways_;
  std::vector<Line> lines_;
  std::map<std::tuple<TypeId, PlacementId, PlacementId>, uint32_t> steps_;
  // The lines of each entry; and for a move its entry, or nothing where there is no way.
  std::vector<std::vector<uint32_t>> entries_;
  std::map<std::tuple<TypeId, PlacementId, PlacementId, ReduceOrder>, std::optional<Entry>> moves_;
  std::vector<Nanos> prices_;
};

}  // namespace heddle
