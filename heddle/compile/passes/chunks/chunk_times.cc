#include "heddle/compile/passes/chunks/chunk_times.h"

#include "heddle/core/ops/ops.h"

namespace heddle::compile {

Result<std::map<std::string, Nanos, std::less<>>> TimesOfChunks(
    const Module& module, const Graph& before, const Graph& after, const price::CostModel& model,
    const price::GraphCosts& costs, const RegionWriter& writer) {
  std::map<std::string, Nanos, std::less<>> times;
  const price::MeasuredCosts* measured = model.measured();
  if (measured == nullptr || measured->nodes.empty()) return times;
  price::CostOptions plain_options = model.options();
  plain_options.rules = {};
  HEDDLE_TRY(price::CostModel plain, price::CostModel::Make(model.cluster(), plain_options));
  HEDDLE_TRY(price::GraphCosts whole, plain.Price(module, before));
  HEDDLE_TRY(price::GraphCosts parts, plain.Price(module, after));
  const Nanos launch = model.cluster().device.launch;
  // Launch time that the rules add to each node. If 0, measured times include launches.
  const Nanos added = model.options().rules.launch;
  for (const PieceCopy& copy : writer.copies()) {
    NodeId from = before[before.FindValue(copy.original)].producer;
    NodeId to = after[after.FindValue(copy.name)].producer;
    const price::NodeCost& cost = costs.nodes[from];
    if (!cost.measured || cost.stream != price::NodeCost::kCompute) continue;
    auto results = static_cast<int64_t>(before[from].result_count);
    Nanos launches = added == Nanos{} ? launch : added * (results > 1 ? results : 0);
    Nanos work = std::max(cost.compute - added - launches, Nanos{});
    double of = static_cast<double>((whole.nodes[from].compute - launch).value);
    double part = static_cast<double>((parts.nodes[to].compute - launch).value);
    if (of > 0)
      work = price::WholeNanos(static_cast<double>(work.value) * std::max(part, 0.0) / of);
    times[copy.name] = work + std::min(launches, cost.compute - added);
  }
  for (const std::string& name : writer.moves()) {
    const ValueId moved = after.FindValue(name);
    if (after[after[moved].producer].op == op::slice_Tensor) continue;
    times[name] = model.Pack(after.types().bytes(after.type(moved)));
  }
  for (const std::string& name : writer.views()) times[name] = Nanos{};
  return times;
}

}  // namespace heddle::compile
