#include "heddle/search/placement/cost_table.h"

#include <limits>
#include <utility>

#include "heddle/compile/passes/passes.h"
#include "heddle/core/ops/ops.h"

namespace heddle::search {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns sizes with the same redistribution steps. A multiple of the number of ranks becomes that
// number, if the product of all such sizes is a multiple of its square.
Dims SizesOf(std::span<const Dim> dims, int64_t ranks) {
  Dims sizes(dims.begin(), dims.end());
  Dims out = sizes;
  int64_t even = 1;
  for (Dim& dim : out) {
    if (IsSymbol(dim) || dim <= 0 || dim % ranks != 0) continue;
    if (__builtin_mul_overflow(even, static_cast<int64_t>(dim), &even)) return sizes;
    dim = ranks;
  }
  int64_t twice = 0;
  if (__builtin_mul_overflow(ranks, ranks, &twice)) return sizes;
  return even % twice == 0 ? out : sizes;
}

}  // namespace

CostTable::Paths& CostTable::PathsOf(TypeId type, compile::ReduceOrder order) {
  Paths*& paths = paths_of_[{type, order}];
  if (paths == nullptr) paths = &paths_[{order, SizesOf(graph_.types().dims(type), mesh_.ranks())}];
  return *paths;
}

CostTable::Path& CostTable::PathIn(Paths& paths, PlacementId from, PlacementId to) {
  if (paths.size() <= from.index()) paths.resize(from.index() + 1);
  std::vector<Path>& row = paths[from.index()];
  if (row.size() <= to.index()) row.resize(placements_.size());
  return row[to.index()];
}

const std::optional<compile::PackedPlacement>& CostTable::PackedAt(PlacementId id) {
  if (packed_.size() <= id.index()) packed_.resize(placements_.size());
  std::optional<std::optional<compile::PackedPlacement>>& packed = packed_[id.index()];
  if (!packed) packed = compile::Pack(placements_[id]);
  return *packed;
}

CostTable::Path CostTable::FindPath(TypeId type, PlacementId from, PlacementId to,
                                    compile::ReduceOrder order) {
  std::span<const Dim> dims = graph_.types().dims(type);
  std::optional<compile::PackedPlacement> start = PackedAt(from);
  std::optional<compile::PackedPlacement> goal = PackedAt(to);
  auto first = static_cast<uint32_t>(path_steps_.size());
  auto add = [&](PlacementId stop) {
    path_steps_.push_back(StepOf(std::exchange(from, stop), stop));
  };
  if (start && goal) {
    stops_.clear();
    if (!search_.Find(*start, *goal, dims, order, stops_)) return {Path::kNone};
    // The last one is known.
    for (size_t i = 0; i + 1 < stops_.size(); ++i) add(InternPacked(stops_[i], dims.size()));
    if (!stops_.empty()) add(to);
  } else {
    Result<std::vector<compile::RedistributionStep>> steps = compile::PlanRedistribution(
        placements_[from], placements_[to], Dims(dims.begin(), dims.end()), mesh_, order);
    if (!steps.ok()) return {Path::kNone};
    for (const compile::RedistributionStep& step : *steps) add(Intern(step.to));
  }
  return {first, static_cast<uint32_t>(path_steps_.size()) - first};
}

PlacementId CostTable::InternPacked(compile::PackedPlacement packed, size_t rank) {
  // Placements use fewer than eight bytes, so the last byte can store the rank.
  static_assert(Mesh::kMaxAxes < 8);
  auto [at, added] = by_packed_.try_emplace(packed | uint64_t{rank} << 56);
  if (added) at->second = Intern(compile::Unpack(packed, rank));
  return at->second;
}

uint32_t CostTable::StepOf(PlacementId from, PlacementId to) {
  if (step_of_.size() <= from.index()) step_of_.resize(placements_.size());
  std::vector<uint32_t>& row = step_of_[from.index()];
  if (row.size() <= to.index()) row.resize(placements_.size(), kNone);
  uint32_t& step = row[to.index()];
  if (step == kNone) {
    step = static_cast<uint32_t>(steps_.size());
    steps_.emplace_back(from, to);
  }
  return step;
}

void CostTable::RequestMoves(TypeId type, compile::ReduceOrder order, PlacementId from,
                             std::span<const PlacementId> to) {
  Paths& paths = PathsOf(type, order);
  std::vector<uint32_t>& rows = row_of_[type];
  for (PlacementId goal : to) {
    Path path = PathIn(paths, from, goal);
    if (path.first == Path::kUnknown) {
      path = FindPath(type, from, goal, order);
      // The number of placements may have grown.
      PathIn(paths, from, goal) = path;
    }
    if (rows.size() < steps_.size()) rows.resize(steps_.size(), kNone);
    for (uint32_t i = 0; i < path.count; ++i) {
      uint32_t step = path_steps_[path.first + i];
      if (rows[step] != kNone) continue;
      rows[step] = AddRow({.type = type, .from = steps_[step].first, .to = steps_[step].second});
    }
  }
}

CostTable::CallId CostTable::RequestCall(NodeId node, const compile::OpSplit& split) {
  Row row{.node = node};
  for (const Placement& placement : split.operands)
    row.operands.push_back(placements_.Intern(placement));
  for (const Placement& placement : split.results)
    row.results.push_back(placements_.Intern(placement));
  return AddRow(std::move(row));
}

TypeId CostTable::PartOf(TypeId type, PlacementId placement) {
  std::vector<std::optional<TypeId>>& parts = part_of_[type];
  if (parts.size() <= placement.index()) parts.resize(placements_.size());
  std::optional<TypeId>& part = parts[placement.index()];
  if (!part) part = compile::LocalType(graph_.types()[type], placements_[placement], mesh_, parts_);
  return *part;
}

// Returns the existing row with the same cost, or adds one.
uint32_t CostTable::AddRow(Row row) {
  key_.Clear();
  if (row.node) {
    AddCallKey(row);
  } else {
    AddMoveKey(row);
  }
  if (const uint32_t* known = known_.Find(key_)) return *known;
  auto number = static_cast<uint32_t>(rows_.size());
  known_.Add(key_, number);
  rows_.push_back(std::move(row));
  return number;
}

// Only the size of the part matters for axes that both ends have in common.
void CostTable::AddMoveKey(const Row& row) {
  key_.Add(PartOf(row.type, row.from).index());
  std::optional<compile::PackedPlacement> start = PackedAt(row.from);
  std::optional<compile::PackedPlacement> goal = PackedAt(row.to);
  if (start && goal) {
    compile::CommonParts common(*start, *goal);
    key_.Add(common.RemovedFrom(*start));
    key_.Add(common.RemovedFrom(*goal));
  } else {
    for (PlacementId id : {row.from, row.to}) key_.Add(id.index());
    key_.Add(row.type.index());
  }
}

void CostTable::AddCallKey(const Row& row) {
  const Node& node = graph_[row.node];
  key_.Add(uint64_t{node.op.index()} << 32 | node.attrs.index());
  key_.Add(static_cast<uint64_t>(node.phase));
  auto note = [&](ValueId v, PlacementId at) {
    key_.Add(v ? PartOf(graph_.type(v), at).index() : UINT32_MAX);
    // If a table is split, its lookups are shifted.
    if (graph_.op(row.node).def->lookup) key_.Add(at.index());
  };
  size_t i = 0;
  for (ValueId v : graph_.operands(row.node)) note(v, row.operands[i++]);
  i = 0;
  for (ValueId v : graph_.results(row.node)) note(v, row.results[i++]);
}

// Scopes identify rows, because passes keep scopes.
void CostTable::Append(Graph& graph, uint32_t number,
                       const std::map<std::pair<TypeId, PlacementId>, ValueId>& inputs) const {
  const Row& row = rows_[number];
  NodeSpec spec{.op = op::shard_redistribute, .operands = {}, .results = {}};
  spec.scope = graph.InternScope(fmt::format("{}", number));
  std::vector<ValueId> operands;
  std::vector<ResultSpec> results;
  auto place = [&](PlacementId id) { return graph.placements().Intern(placements_[id]); };
  auto type = [&](TypeId id) { return graph.types().Intern(graph_.types()[id]); };
  if (row.node) {
    spec.op = graph_[row.node].op;
    spec.attrs = graph.InternAttrs(graph_.attrs(row.node));
    spec.phase = graph_[row.node].phase;
    size_t i = 0;
    for (ValueId v : graph_.operands(row.node)) {
      operands.push_back(v ? inputs.at({graph_.type(v), row.operands[i]}) : ValueId());
      ++i;
    }
    size_t r = 0;
    for (ValueId v : graph_.results(row.node))
      results.push_back({type(graph_.type(v)), "r", place(row.results[r++])});
  } else {
    Attrs attrs;
    attrs.Set("why", Why::kTensor);
    spec.attrs = graph.InternAttrs(attrs);
    operands.push_back(inputs.at({row.type, row.from}));
    results.push_back({type(row.type), "r", place(row.to)});
  }
  spec.operands = operands;
  spec.results = results;
  graph.Append(spec);
}

Graph CostTable::MakeGraph() {
  Graph graph("graph", graph_.ops());
  graph.types().symbols() = graph_.types().symbols();
  std::map<std::pair<TypeId, PlacementId>, ValueId> inputs;
  auto add = [&](TypeId type, PlacementId placement) {
    auto [at, added] = inputs.try_emplace({type, placement});
    if (added)
      at->second = graph.AddInput({}, graph.types().Intern(graph_.types()[type]), "x",
                                  graph.placements().Intern(placements_[placement]));
  };
  for (const Row& row : rows_) {
    if (!row.node) add(row.type, row.from);
    for (size_t i = 0; row.node && i < row.operands.size(); ++i) {
      ValueId v = graph_.operands(row.node)[i];
      if (v) add(graph_.type(v), row.operands[i]);
    }
  }
  for (uint32_t n = 0; n < rows_.size(); ++n) Append(graph, n, inputs);
  return graph;
}

Status CostTable::Run(const price::CostModel& model) {
  search_.Forget();
  Module module{View::kGlobal, mesh_, {}};
  module.graphs.push_back(MakeGraph());
  compile::PassContext context(module.mesh);
  const compile::PassDef& localize = *compile::Passes().Find("localize");
  HEDDLE_RETURN_IF_ERROR(localize.run(module, localize.make_options().get(), context));
  const Graph& local = module.graphs[0];
  HEDDLE_TRY(price::GraphCosts costs, model.Price(module, local));
  prices_.assign(rows_.size(), {});
  for (NodeId node : local.nodes()) {
    const price::NodeCost& cost = costs.nodes[node];
    prices_[local[node].scope.index()] += cost.compute + cost.pack + cost.collective.total();
  }
  return Done{};
}

void CostTable::MovePrices(TypeId type, compile::ReduceOrder order, PlacementId from,
                           std::span<const PlacementId> to, double* prices) {
  Paths& paths = PathsOf(type, order);
  const std::vector<uint32_t>& rows = row_of_.at(type);
  for (PlacementId goal : to) {
    Path path = PathIn(paths, from, goal);
    Nanos sum;
    for (uint32_t i = 0; i < path.count; ++i) sum += prices_[rows[path_steps_[path.first + i]]];
    *prices++ = path.first == Path::kNone ? kInfinity : static_cast<double>(sum.value);
  }
}

}  // namespace heddle::search
