#include "heddle/compile/passes/chunks/chunk_times.h"

#include "heddle/core/ops/ops.h"

namespace heddle {

Result<std::map<std::string, Nanos, std::less<>>> TimesOfChunks(
    const Module& module, const Graph& before, const Graph& after, const CostModel& model,
    const GraphCosts& costs, const RegionWriter& writer) {
  std::map<std::string, Nanos, std::less<>> times;
  const MeasuredCosts* measured = model.measured();
  if (measured == nullptr || measured->nodes.empty()) return times;
  bool study = measured->study.has_value();
  CostOptions plain_options = model.options();
  plain_options.rules = TimelineRules::kNative;
  HEDDLE_TRY(CostModel plain, CostModel::Make(model.cluster(), plain_options));
  HEDDLE_TRY(GraphCosts whole, plain.Price(module, before));
  HEDDLE_TRY(GraphCosts parts, plain.Price(module, after));
  Nanos launch = model.cluster().device.launch;
  for (const PieceCopy& copy : writer.copies()) {
    NodeId from = before[before.FindValue(copy.original)].producer;
    NodeId to = after[after.FindValue(copy.name)].producer;
    const NodeCost& cost = costs.nodes[from];
    if (!cost.measured || cost.stream != NodeCost::kCompute) continue;
    // By a study's rules launches were added, one for each of several results.
    auto results = static_cast<int64_t>(before[from].result_count);
    Nanos launches = study ? kStudyLaunch * (results > 1 ? results : 0) : launch;
    Nanos added = study ? kStudyLaunch : Nanos{};
    Nanos work = std::max(cost.compute - added - launches, Nanos{});
    double of = static_cast<double>((whole.nodes[from].compute - launch).value);
    double part = static_cast<double>((parts.nodes[to].compute - launch).value);
    if (of > 0) work = WholeNanos(static_cast<double>(work.value) * std::max(part, 0.0) / of);
    times[copy.name] = work + std::min(launches, cost.compute - added);
  }
  for (const std::string& name : writer.moves()) {
    const ValueId moved = after.FindValue(name);
    if (after[after[moved].producer].op == op::slice_Tensor) continue;
    Bytes bytes = after.types().bytes(after.type(moved));
    times[name] =
        study ? WholeNanos(InNanos(bytes * 2, measured->study->memory)) : model.Pack(bytes);
  }
  for (const std::string& name : writer.views()) times[name] = Nanos{};
  return times;
}

}  // namespace heddle
