#include "heddle/auto/price_sheet.h"

#include "heddle/ops/ops.h"
#include "heddle/passes/passes.h"

namespace heddle {

namespace {

uint64_t PairOf(PlacementId from, PlacementId to) {
  return uint64_t{from.index()} << 32 | to.index();
}

// What ways depend on: sizes that divide by all ranks, where together they divide by them twice, are as good as any other.
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

PriceSheet::Ways& PriceSheet::WaysOf(TypeId type, ReduceOrder order) {
  Ways*& ways = ways_of_[{type, order}];
  if (ways == nullptr) ways = &ways_[{order, SizesOf(graph_.types().dims(type), mesh_.ranks())}];
  return *ways;
}

PriceSheet::Way PriceSheet::FindWay(TypeId type, PlacementId from, PlacementId to,
                                    ReduceOrder order) {
  auto [at, added] = WaysOf(type, order).try_emplace(PairOf(from, to));
  if (!added) return at->second;
  std::span<const Dim> dims = graph_.types().dims(type);
  std::optional<PlacementWord> start = WordOf(placements_[from]);
  std::optional<PlacementWord> goal = WordOf(placements_[to]);
  std::vector<PlacementId> stops;
  if (start && goal) {
    std::vector<PlacementWord> words;
    if (!search_.Find(*start, *goal, dims, order, words)) return at->second;
    for (PlacementWord word : words) stops.push_back(InternWord(word, dims.size()));
  } else {
    Result<std::vector<RedistributionStep>> steps = PlanRedistribution(
        placements_[from], placements_[to], Dims(dims.begin(), dims.end()), mesh_, order);
    if (!steps.ok()) return at->second;
    for (RedistributionStep& step : *steps) stops.push_back(Intern(std::move(step.to)));
  }
  at->second = {static_cast<uint32_t>(stops_.size()), static_cast<uint32_t>(stops.size())};
  stops_.insert(stops_.end(), stops.begin(), stops.end());
  return at->second;
}

PlacementId PriceSheet::InternWord(PlacementWord word, size_t rank) {
  // No axis has the last byte.
  static_assert(Mesh::kMaxAxes < 8);
  auto [at, added] = by_word_.try_emplace(word | uint64_t{rank} << 56);
  if (added) at->second = Intern(PlacementOf(word, rank));
  return at->second;
}

uint32_t PriceSheet::AskStep(TypeId type, PlacementId from, PlacementId to) {
  auto [at, added] =
      steps_[type].try_emplace(PairOf(from, to), static_cast<uint32_t>(lines_.size()));
  if (added) lines_.push_back({NodeId(), type, {from}, {to}});
  return at->second;
}

std::optional<PriceSheet::Entry> PriceSheet::AskMove(TypeId type, PlacementId from, PlacementId to,
                                                     ReduceOrder order) {
  Way way = FindWay(type, from, to, order);
  if (way.first == Way::kNone) return std::nullopt;
  for (uint32_t i = way.first; i < way.first + way.count; ++i) {
    entry_lines_.push_back(AskStep(type, from, stops_[i]));
    from = stops_[i];
  }
  entry_ends_.push_back(static_cast<uint32_t>(entry_lines_.size()));
  return static_cast<Entry>(entry_ends_.size() - 1);
}

PriceSheet::Entry PriceSheet::AskCall(NodeId node, const OpSplit& split) {
  Line line{node, TypeId(), {}, {}};
  for (const Placement& placement : split.operands)
    line.operands.push_back(placements_.Intern(placement));
  for (const Placement& placement : split.results)
    line.results.push_back(placements_.Intern(placement));
  entry_lines_.push_back(static_cast<uint32_t>(lines_.size()));
  entry_ends_.push_back(static_cast<uint32_t>(entry_lines_.size()));
  lines_.push_back(std::move(line));
  return static_cast<Entry>(entry_ends_.size() - 1);
}

// Lines are told apart by their scopes, which passes keep.
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
    operands.push_back(inputs.at({line.type, line.operands[0]}));
    results.push_back({type(line.type), "r", place(line.results[0])});
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
    if (!line.node) add(line.type, line.operands[0]);
    for (size_t i = 0; line.node && i < line.operands.size(); ++i) {
      ValueId v = graph_.operands(line.node)[i];
      if (v) add(graph_.type(v), line.operands[i]);
    }
  }
  for (uint32_t n = 0; n < lines_.size(); ++n) Append(sheet, n, inputs);
  return sheet;
}

Status PriceSheet::Run(const CostModel& model) {
  Module module{View::kGlobal, mesh_, {}};
  module.graphs.push_back(MakeGraph());
  AnalysisCache analyses;
  PassContext context(module.mesh, analyses);
  const PassDef& localize = *Passes().Find("localize");
  HEDDLE_RETURN_IF_ERROR(localize.run(module, localize.make_options().get(), context));
  const Graph& local = module.graphs[0];
  HEDDLE_TRY(GraphCosts costs, model.Price(module, local));
  prices_.assign(lines_.size(), {});
  for (NodeId node : local.nodes()) {
    const NodeCost& cost = costs.nodes[node];
    prices_[local[node].scope.index()] += cost.compute + cost.pack + cost.collective.total();
  }
  return Done{};
}

Nanos PriceSheet::Price(Entry entry) const {
  Nanos sum;
  uint32_t begin = entry == 0 ? 0 : entry_ends_[entry - 1];
  for (uint32_t i = begin; i < entry_ends_[entry]; ++i) sum += prices_[entry_lines_[i]];
  return sum;
}

}  // namespace heddle
