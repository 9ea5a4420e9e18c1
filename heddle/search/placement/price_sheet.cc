#include "heddle/search/placement/price_sheet.h"

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

PriceSheet::Ways& PriceSheet::WaysOf(TypeId type, compile::ReduceOrder order) {
  Ways*& ways = ways_of_[{type, order}];
  if (ways == nullptr) ways = &ways_[{order, SizesOf(graph_.types().dims(type), mesh_.ranks())}];
  return *ways;
}

PriceSheet::Way& PriceSheet::WayIn(Ways& ways, PlacementId from, PlacementId to) {
  if (ways.size() <= from.index()) ways.resize(from.index() + 1);
  std::vector<Way>& row = ways[from.index()];
  if (row.size() <= to.index()) row.resize(placements_.size());
  return row[to.index()];
}

const std::optional<compile::PlacementWord>& PriceSheet::WordAt(PlacementId id) {
  if (words_.size() <= id.index()) words_.resize(placements_.size());
  std::optional<std::optional<compile::PlacementWord>>& word = words_[id.index()];
  if (!word) word = compile::WordOf(placements_[id]);
  return *word;
}

PriceSheet::Way PriceSheet::FindWay(TypeId type, PlacementId from, PlacementId to,
                                    compile::ReduceOrder order) {
  std::span<const Dim> dims = graph_.types().dims(type);
  std::optional<compile::PlacementWord> start = WordAt(from);
  std::optional<compile::PlacementWord> goal = WordAt(to);
  auto first = static_cast<uint32_t>(way_steps_.size());
  auto add = [&](PlacementId stop) {
    way_steps_.push_back(StepOf(std::exchange(from, stop), stop));
  };
  if (start && goal) {
    stops_.clear();
    if (!search_.Find(*start, *goal, dims, order, stops_)) return {Way::kNone};
    // The last one is known.
    for (size_t i = 0; i + 1 < stops_.size(); ++i) add(InternWord(stops_[i], dims.size()));
    if (!stops_.empty()) add(to);
  } else {
    Result<std::vector<compile::RedistributionStep>> steps = compile::PlanRedistribution(
        placements_[from], placements_[to], Dims(dims.begin(), dims.end()), mesh_, order);
    if (!steps.ok()) return {Way::kNone};
    for (const compile::RedistributionStep& step : *steps) add(Intern(step.to));
  }
  return {first, static_cast<uint32_t>(way_steps_.size()) - first};
}

PlacementId PriceSheet::InternWord(compile::PlacementWord word, size_t rank) {
  // Placements use fewer than eight bytes, so the last byte can store the rank.
  static_assert(Mesh::kMaxAxes < 8);
  auto [at, added] = by_word_.try_emplace(word | uint64_t{rank} << 56);
  if (added) at->second = Intern(compile::PlacementOf(word, rank));
  return at->second;
}

uint32_t PriceSheet::StepOf(PlacementId from, PlacementId to) {
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

void PriceSheet::AskMoves(TypeId type, compile::ReduceOrder order, PlacementId from,
                          std::span<const PlacementId> to) {
  Ways& ways = WaysOf(type, order);
  std::vector<uint32_t>& lines = line_of_[type];
  for (PlacementId goal : to) {
    Way way = WayIn(ways, from, goal);
    if (way.first == Way::kUnknown) {
      way = FindWay(type, from, goal, order);
      // The number of placements may have grown.
      WayIn(ways, from, goal) = way;
    }
    if (lines.size() < steps_.size()) lines.resize(steps_.size(), kNone);
    for (uint32_t i = 0; i < way.count; ++i) {
      uint32_t step = way_steps_[way.first + i];
      if (lines[step] != kNone) continue;
      lines[step] = AddLine({.type = type, .from = steps_[step].first, .to = steps_[step].second});
    }
  }
}

PriceSheet::Entry PriceSheet::AskCall(NodeId node, const compile::OpSplit& split) {
  Line line{.node = node};
  for (const Placement& placement : split.operands)
    line.operands.push_back(placements_.Intern(placement));
  for (const Placement& placement : split.results)
    line.results.push_back(placements_.Intern(placement));
  return AddLine(std::move(line));
}

TypeId PriceSheet::PartOf(TypeId type, PlacementId placement) {
  std::vector<std::optional<TypeId>>& parts = part_of_[type];
  if (parts.size() <= placement.index()) parts.resize(placements_.size());
  std::optional<TypeId>& part = parts[placement.index()];
  if (!part) part = compile::LocalType(graph_.types()[type], placements_[placement], mesh_, parts_);
  return *part;
}

// Returns the existing line with the same cost, or adds one.
uint32_t PriceSheet::AddLine(Line line) {
  key_.Clear();
  if (line.node) {
    NoteCall(line);
  } else {
    NoteMove(line);
  }
  if (const uint32_t* known = known_.Find(key_)) return *known;
  auto number = static_cast<uint32_t>(lines_.size());
  known_.Add(key_, number);
  lines_.push_back(std::move(line));
  return number;
}

// Only the size of the part matters for axes that both ends have in common.
void PriceSheet::NoteMove(const Line& line) {
  key_.Add(PartOf(line.type, line.from).index());
  std::optional<compile::PlacementWord> start = WordAt(line.from);
  std::optional<compile::PlacementWord> goal = WordAt(line.to);
  if (start && goal) {
    compile::CommonOfWords common(*start, *goal);
    key_.Add(common.RemovedFrom(*start));
    key_.Add(common.RemovedFrom(*goal));
  } else {
    for (PlacementId id : {line.from, line.to}) key_.Add(id.index());
    key_.Add(line.type.index());
  }
}

void PriceSheet::NoteCall(const Line& line) {
  const Node& node = graph_[line.node];
  key_.Add(uint64_t{node.op.index()} << 32 | node.attrs.index());
  key_.Add(static_cast<uint64_t>(node.phase));
  auto note = [&](ValueId v, PlacementId at) {
    key_.Add(v ? PartOf(graph_.type(v), at).index() : UINT32_MAX);
    // If a table is split, its lookups are shifted.
    if (graph_.op(line.node).def->lookup) key_.Add(at.index());
  };
  size_t i = 0;
  for (ValueId v : graph_.operands(line.node)) note(v, line.operands[i++]);
  i = 0;
  for (ValueId v : graph_.results(line.node)) note(v, line.results[i++]);
}

// Scopes identify lines, because passes keep scopes.
void PriceSheet::Append(Graph& sheet, uint32_t number,
                        const std::map<std::pair<TypeId, PlacementId>, ValueId>& inputs) const {
  const Line& line = lines_[number];
  NodeSpec spec{.op = op::shard_redistribute, .operands = {}, .results = {}};
  spec.scope = sheet.InternScope(fmt::format("{}", number));
  std::vector<ValueId> operands;
  std::vector<ResultSpec> results;
  auto place = [&](PlacementId id) { return sheet.placements().Intern(placements_[id]); };
  auto type = [&](TypeId id) { return sheet.types().Intern(graph_.types()[id]); };
  if (line.node) {
    spec.op = graph_[line.node].op;
    spec.attrs = sheet.InternAttrs(graph_.attrs(line.node));
    spec.phase = graph_[line.node].phase;
    size_t i = 0;
    for (ValueId v : graph_.operands(line.node)) {
      operands.push_back(v ? inputs.at({graph_.type(v), line.operands[i]}) : ValueId());
      ++i;
    }
    size_t r = 0;
    for (ValueId v : graph_.results(line.node))
      results.push_back({type(graph_.type(v)), "r", place(line.results[r++])});
  } else {
    Attrs attrs;
    attrs.Set("why", Why::kTensor);
    spec.attrs = sheet.InternAttrs(attrs);
    operands.push_back(inputs.at({line.type, line.from}));
    results.push_back({type(line.type), "r", place(line.to)});
  }
  spec.operands = operands;
  spec.results = results;
  sheet.Append(spec);
}

Graph PriceSheet::MakeGraph() {
  Graph sheet("sheet", graph_.ops());
  sheet.types().symbols() = graph_.types().symbols();
  std::map<std::pair<TypeId, PlacementId>, ValueId> inputs;
  auto add = [&](TypeId type, PlacementId placement) {
    auto [at, added] = inputs.try_emplace({type, placement});
    if (added)
      at->second = sheet.AddInput({}, sheet.types().Intern(graph_.types()[type]), "x",
                                  sheet.placements().Intern(placements_[placement]));
  };
  for (const Line& line : lines_) {
    if (!line.node) add(line.type, line.from);
    for (size_t i = 0; line.node && i < line.operands.size(); ++i) {
      ValueId v = graph_.operands(line.node)[i];
      if (v) add(graph_.type(v), line.operands[i]);
    }
  }
  for (uint32_t n = 0; n < lines_.size(); ++n) Append(sheet, n, inputs);
  return sheet;
}

Status PriceSheet::Run(const price::CostModel& model) {
  search_.Forget();
  Module module{View::kGlobal, mesh_, {}};
  module.graphs.push_back(MakeGraph());
  compile::PassContext context(module.mesh);
  const compile::PassDef& localize = *compile::Passes().Find("localize");
  HEDDLE_RETURN_IF_ERROR(localize.run(module, localize.make_options().get(), context));
  const Graph& local = module.graphs[0];
  HEDDLE_TRY(price::GraphCosts costs, model.Price(module, local));
  prices_.assign(lines_.size(), {});
  for (NodeId node : local.nodes()) {
    const price::NodeCost& cost = costs.nodes[node];
    prices_[local[node].scope.index()] += cost.compute + cost.pack + cost.collective.total();
  }
  return Done{};
}

void PriceSheet::MovePrices(TypeId type, compile::ReduceOrder order, PlacementId from,
                            std::span<const PlacementId> to, double* prices) {
  Ways& ways = WaysOf(type, order);
  const std::vector<uint32_t>& lines = line_of_.at(type);
  for (PlacementId goal : to) {
    Way way = WayIn(ways, from, goal);
    Nanos sum;
    for (uint32_t i = 0; i < way.count; ++i) sum += prices_[lines[way_steps_[way.first + i]]];
    *prices++ = way.first == Way::kNone ? kInfinity : static_cast<double>(sum.value);
  }
}

}  // namespace heddle::search
