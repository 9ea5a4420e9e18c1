// PriceSheet: what calls and redistributions will cost once they are lowered.
//
// Whoever has a question writes it on the sheet. Run makes a graph of all of them, lets `localize` turn it into what a rank runs, and has the
// cost model price it: so a price is what will be paid, to the nanosecond. Equal steps of moves are one line.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heddle/cost/cost_model.h"
#include "heddle/ir/graph.h"
#include "heddle/shard/op_splits.h"
#include "heddle/shard/redistribution_cache.h"

namespace heddle {

class PriceSheet {
 public:
  // A question, by number.
  using Entry = uint32_t;

  // About nodes and types of `graph`, which is global, without placements, and outlives this.
  PriceSheet(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh), search_(mesh) {}

  PlacementId Intern(const Placement& placement) { return placements_.Intern(placement); }
  const Placement& operator[](PlacementId id) const { return placements_[id]; }

  // A tensor of this type moves; nothing if no steps lead there. Asked once.
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

  // The placements on the way, the first left out. Where there is none, `first` is kNone.
  struct Way {
    static constexpr uint32_t kNone = UINT32_MAX;
    uint32_t first = kNone;
    uint32_t count = 0;
  };
  // By where it begins and ends.
  using Ways = std::unordered_map<uint64_t, Way>;

  Ways& WaysOf(TypeId type, ReduceOrder order);
  Way FindWay(TypeId type, PlacementId from, PlacementId to, ReduceOrder order);
  PlacementId InternWord(PlacementWord word, size_t rank);
  uint32_t AskStep(TypeId type, PlacementId from, PlacementId to);
  Graph MakeGraph();
  void Append(Graph& sheet, uint32_t line,
              const std::map<std::pair<TypeId, PlacementId>, ValueId>& inputs) const;

  const Graph& graph_;
  const Mesh& mesh_;
  PlacementTable placements_;
  RedistributionCache search_;
  // By word and number of dimensions.
  std::unordered_map<uint64_t, PlacementId> by_word_;
  // Tensors of many types go the same ways; and the stops of all ways.
  std::map<std::pair<ReduceOrder, Dims>, Ways> ways_;
  std::map<std::pair<TypeId, ReduceOrder>, Ways*> ways_of_;
  std::vector<PlacementId> stops_;
  std::vector<Line> lines_;
  // By type; then by where a step begins and ends.
  std::map<TypeId, std::unordered_map<uint64_t, uint32_t>> steps_;
  // The lines of all entries, and where those of each end.
  std::vector<uint32_t> entry_lines_;
  std::vector<uint32_t> entry_ends_;
  std::vector<Nanos> prices_;
};

}  // namespace heddle
