#include "heddle/auto/price_sheet.h"

#include "heddle/ops/ops.h"
#include "heddle/passes/passes.h"

namespace heddle {

std::optional<PriceSheet::Entry> PriceSheet::AskMove(TypeId type, PlacementId from, PlacementId to,
                                                     ReduceOrder order) {
  auto [at, added] = moves_.try_emplace({type, from, to, order});
  if (!added) return at->second;
  std::span<const Dim> dims = graph_.types().dims(type);
  Result<std::vector<RedistributionStep>> steps =
      ways_.Plan(placements_[from], placements_[to], Dims(dims.begin(), dims.end()), order);
  if (!steps.ok()) return std::nullopt;
  entries_.push_back(StepsOf(type, from, *steps));
  return at->second = static_cast<Entry>(entries_.size() - 1);
}

std::vector<uint32_t> PriceSheet::StepsOf(TypeId type, PlacementId from,
                                          const std::vector<RedistributionStep>& steps) {
  std::vector<uint32_t> lines;
  for (const RedistributionStep& step : steps) {
    PlacementId to = placements_.Intern(step.to);
    auto [at, added] = steps_.try_emplace({type, from, to}, static_cast<uint32_t>(lines_.size()));
    if (added) lines_.push_back({NodeId(), type, {from}, {to}});
    lines.push_back(at->second);
    from = to;
  }
  return lines;
}

PriceSheet::Entry PriceSheet::AskCall(NodeId node, const OpSplit& split) {
  Line line{node, TypeId(), {}, {}};
  for (const Placement& placement : split.operands)
    line.operands.push_back(placements_.Intern(placement));
  for (const Placement& placement : split.results)
    line.results.push_back(placements_.Intern(placement));
  entries_.push_back({static_cast<uint32_t>(lines_.size())});
  lines_.push_back(std::move(line));
  return static_cast<Entry>(entries_.size() - 1);
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
  for (uint32_t line : entries_[entry]) sum += prices_[line];
  return sum;
}

}  // namespace heddle
