// PriceSheet: what calls and redistributions will cost once they are lowered.
//
// Whoever has a question writes it on the sheet. Run makes a graph of all of them, lets `localize` turn it into what a rank runs, and has the
// cost model price it: so a price is what will be paid, to the nanosecond. Questions that come to the same on a rank are one line.
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
  // A call, by number.
  using Entry = uint32_t;

  // About nodes and types of `graph`, which is global, without placements, and outlives this.
  PriceSheet(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh), search_(mesh) {
    parts_.symbols() = graph.types().symbols();
  }

  PlacementId Intern(const Placement& placement) { return placements_.Intern(placement); }
  const Placement& operator[](PlacementId id) const { return placements_[id]; }

  // Tensors of a type move from there to any of these.
  void AskMoves(TypeId type, compile::ReduceOrder order, PlacementId from,
                std::span<const PlacementId> to);
  // A node works on parts.
  Entry AskCall(NodeId node, const compile::OpSplit& split);

  Status Run(const price::CostModel& model);
  // Calls, and steps of moves: what is alike once.
  size_t line_count() const { return lines_.size(); }
  // After Run.
  Nanos Price(Entry entry) const { return prices_[entry]; }
  // The same of moves that were asked for: infinite where no steps lead there.
  void MovePrices(TypeId type, compile::ReduceOrder order, PlacementId from,
                  std::span<const PlacementId> to, double* prices);

 private:
  // What becomes one node of the sheet's graph: a call, or a single step of a redistribution.
  struct Line {
    // None for a step.
    NodeId node = {};
    // Of a step.
    TypeId type = {};
    PlacementId from = {};
    PlacementId to = {};
    // Of a call.
    std::vector<PlacementId> operands = {};
    std::vector<PlacementId> results = {};
  };

  // Numbers of steps, one after the other.
  struct Way {
    static constexpr uint32_t kUnknown = UINT32_MAX;
    static constexpr uint32_t kNone = UINT32_MAX - 1;
    uint32_t first = kUnknown;
    uint32_t count = 0;
  };
  // By where they begin, and where they end.
  using Ways = std::vector<std::vector<Way>>;

  Ways& WaysOf(TypeId type, compile::ReduceOrder order);
  Way& WayIn(Ways& ways, PlacementId from, PlacementId to);
  Way FindWay(TypeId type, PlacementId from, PlacementId to, compile::ReduceOrder order);
  const std::optional<compile::PlacementWord>& WordAt(PlacementId id);
  PlacementId InternWord(compile::PlacementWord word, size_t rank);
  uint32_t StepOf(PlacementId from, PlacementId to);
  TypeId PartOf(TypeId type, PlacementId placement);
  uint32_t AddLine(Line line);
  // What prices it, in `key_`.
  void NoteMove(const Line& line);
  void NoteCall(const Line& line);
  Graph MakeGraph();
  void Append(Graph& sheet, uint32_t line,
              const std::map<std::pair<TypeId, PlacementId>, ValueId>& inputs) const;

  const Graph& graph_;
  const Mesh& mesh_;
  PlacementTable placements_;
  compile::RedistributionCache search_;
  // By word and number of dimensions.
  std::unordered_map<uint64_t, PlacementId> by_word_;
  // By placement, where it was asked for.
  std::vector<std::optional<std::optional<compile::PlacementWord>>> words_;
  // Tensors of many types go the same ways.
  std::map<std::pair<compile::ReduceOrder, Dims>, Ways> ways_;
  std::map<std::pair<TypeId, compile::ReduceOrder>, Ways*> ways_of_;
  static constexpr uint32_t kNone = UINT32_MAX;
  // Single steps, by number, and numbers by where they begin and end, where there is one; and those of all ways.
  std::vector<std::pair<PlacementId, PlacementId>> steps_;
  std::vector<std::vector<uint32_t>> step_of_;
  std::vector<uint32_t> way_steps_;
  // Of the way that was found last.
  std::vector<compile::PlacementWord> stops_;
  std::vector<Line> lines_;
  // Lines by what a rank does; and the key of the one that is asked for.
  CallTable<uint32_t> known_;
  CallKey key_;
  // Types of parts of tensors, and by type and placement which a part has, where that was asked for.
  TypeTable parts_;
  std::map<TypeId, std::vector<std::optional<TypeId>>> part_of_;
  // By type and step: its line, if there is one.
  std::map<TypeId, std::vector<uint32_t>> line_of_;
  std::vector<Nanos> prices_;
};

}  // namespace heddle::search
