#include "heddle/price/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/core/base/text.h"
#include "heddle/price/cost/comm/native_model.h"
#include "heddle/price/cost/comm/nccl_model.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle::price {
namespace {
constexpr std::string_view kModelNames[] = {"native", "nccl-2.27"};
}  // namespace

std::string_view Name(CollectiveModel model) { return kModelNames[static_cast<size_t>(model)]; }

Result<CostModel> CostModel::Make(Cluster cluster, const CostOptions& options,
                                  std::optional<MeasuredCosts> measured) {
  // So that the numbers of ranks and bytes do not overflow.
  constexpr int64_t kMostNodes = 1 << 20;
  if (options.nodes && (*options.nodes < 1 || *options.nodes > kMostNodes))
    return Error(Diag::kClusterSize, "{} nodes, expected 1 to {}", *options.nodes, kMostNodes);
  if (options.nodes && cluster.nodes && *options.nodes > *cluster.nodes)
    return Error(Diag::kClusterSize, "{} nodes, but {} has {}", *options.nodes, cluster.name,
                 *cluster.nodes);
  if (options.collectives == CollectiveModel::kNccl && !cluster.nccl)
    return Error(Diag::kBadChoice, "{} has no figures for the model nccl-2.27; use native",
                 cluster.name);
  return CostModel(std::move(cluster), options, std::move(measured));
}

Result<int64_t> CostModel::NodesFor(const Mesh& mesh) const {
  int64_t ranks = 1;
  for (const MeshAxis& axis : mesh.axes()) {
    if (__builtin_mul_overflow(ranks, axis.size, &ranks) || ranks > kMostRanks)
      return Error(Diag::kClusterSize,
                   "the mesh [{}] has more than {} ranks, the maximum of a cluster", Format(mesh),
                   WithCommas(kMostRanks));
  }
  int64_t devices = cluster_.devices_per_node;
  int64_t needed = (ranks + devices - 1) / devices;
  std::optional<int64_t> there = options_.nodes ? options_.nodes : cluster_.nodes;
  if (there && needed > *there) {
    return Error(Diag::kClusterSize,
                 "the mesh [{}] has {} ranks, but {} with {} has {} devices; use {} nodes",
                 Format(mesh), ranks, cluster_.name,
                 *there == 1 ? "1 node" : fmt::format("{} nodes", *there), *there * devices,
                 needed);
  }
  return options_.nodes.value_or(needed);
}

CollectiveCost TransferCost(const Cluster& cluster, Bytes bytes, bool between_nodes) {
  double latency = 0;
  double total = std::numeric_limits<double>::infinity();
  for (const Protocol& protocol : cluster.protocols) {
    const auto& path = between_nodes ? protocol.network : protocol.node;
    double port = between_nodes ? cluster.network_rate.per_nano : cluster.node_rate.per_nano;
    double rate = std::min(port * path.efficiency, path.most.per_nano);
    double begin = protocol.base_nanos + path.step_nanos;
    double time = begin + static_cast<double>(bytes.value) / rate;
    if (time >= total) continue;
    latency = begin;
    total = time;
  }
  Nanos all{std::llround(total)};
  Nanos first = std::min(all, Nanos{std::llround(latency)});
  return {first, all - first, Links::kNone};
}

CostModel CostModel::Additive() const {
  CostModel out = *this;
  out.options_.fused = false;
  return out;
}

bool CostModel::HasDeviceProgram() const {
  const Device& device = cluster_.device;
  return options_.device_program && options_.execution == Execution::kHeddle &&
         device.type == DeviceType::kCuda && device.Under(Execution::kHeddle).fuse &&
         options_.rules == TimelineRules();
}

Bytes CostModel::DevicePeak(Bytes peak) const {
  const ExecutionFigures& figures = cluster_.device.Under(options_.execution);
  auto lost = static_cast<int64_t>(static_cast<double>(peak.value) * figures.fragmentation);
  return peak + Bytes{lost} + figures.fixed;
}

std::optional<CostModel::StepRange> CostModel::RangeOf(Nanos step) const {
  const std::optional<ExecutionFigures::Range>& range =
      cluster_.device.Under(options_.execution).range;
  if (!range) return std::nullopt;
  auto time = static_cast<double>(step.value);
  return StepRange{WholeNanos(time * (1 - range->below)), WholeNanos(time * (1 + range->above))};
}

CollectiveCost CostModel::Copy(Bytes bytes) const {
  return {WholeNanos(cluster_.host->nanos), WholeNanos(InNanos(bytes, cluster_.host->rate)),
          Links::kNone};
}

Nanos CostModel::Move(Bytes bytes) const {
  const ByteRate& rate = options_.rules.copy_rate;
  return rate.per_nano > 0 ? WholeNanos(InNanos(bytes, rate)) : StreamTime(cluster_.device, bytes);
}

BucketCost CostModel::Packing(const PackedTensors& tensors) const {
  const TimelineRules& rules = options_.rules;
  BucketCost cost;
  if (rules.packing == TimelineRules::Packing::kByCollective) {
    if (tensors.before) cost.length = Pack(tensors.given);
    if (tensors.after) cost.behind = Pack(tensors.result);
  }
  if (rules.packing != TimelineRules::Packing::kByKernels || tensors.members == 1) return cost;
  // PyTorch copies the inputs of a gather together and from there into its buffer, and copies each
  // result out of the buffer of all ranks. It copies the inputs of a reduction once; the results
  // are views. The counts leave out the launches of the start and of the wait.
  const int64_t n = tensors.members;
  cost.ahead = Move(tensors.given * (tensors.gather ? 5 : 2)) +
               rules.launch * (n + (tensors.gather ? 4 : 2));
  cost.behind = rules.launch * (tensors.gather ? 2 + 3 * n : 1 + 2 * n);
  if (tensors.gather) cost.behind += Pack(tensors.result);
  return cost;
}

Result<BucketCost> CollectiveCosts::Bucket(CollectiveKind kind, Bytes given, int64_t members,
                                           const Axes& over) {
  HEDDLE_TRY(CollectiveCost alone, Cost(kind, given, over));
  const bool many = members > 1;
  const bool gather = kind == CollectiveKind::kAllGather;
  const TimelineRules& rules = model_.options().rules;
  BucketCost cost = model_.Packing({.gather = gather,
                                    .members = members,
                                    .before = many,
                                    .after = many && gather,
                                    .given = given,
                                    .result = gather ? given * Group(over).ranks : Bytes{}});
  cost.ahead += rules.launch;
  cost.length += alone.total() + rules.launch;
  cost.behind += rules.launch * (rules.launch_per_result ? members : 1);
  return cost;
}

const GroupShape& CollectiveCosts::Group(const Axes& over) {
  uint32_t axes = 0;
  for (AxisId axis : over) axes |= 1U << axis;
  auto [at, added] = groups_.try_emplace(axes);
  if (added) at->second = ShapeOfGroups(mesh_, over, model_.cluster().devices_per_node);
  return at->second;
}

Result<const Curve*> CollectiveCosts::CurveOf(CollectiveKind kind, const Axes& over) {
  if (model_.measured() == nullptr) return nullptr;
  auto at = curves_.find({kind, over});
  if (at != curves_.end()) return at->second;
  HEDDLE_TRY(const Curve* curve, model_.measured()->FindCurve(kind, mesh_, over, Group(over)));
  curves_[{kind, over}] = curve;
  return curve;
}

Result<CollectiveCost> CollectiveCosts::Cost(CollectiveKind kind, Bytes given, const Axes& over) {
  const GroupShape& group = Group(over);
  HEDDLE_TRY(const Curve* curve, CurveOf(kind, over));
  auto time = [&](Bytes bytes) {
    if (curve != nullptr) return curve->At(bytes);
    Bytes counted = kind == CollectiveKind::kAllGather ? bytes * group.ranks : bytes;
    return model_.options().collectives == CollectiveModel::kNccl
               ? NcclTime(kind, counted, group, *model_.cluster().nccl)
               : NativeTime(kind, counted, group, model_.cluster());
  };
  CollectiveCost cost;
  if (kind == CollectiveKind::kShift && curve == nullptr && group.ranks > 1)
    cost = TransferCost(model_.cluster(), given, /*between_nodes=*/group.nodes > 1);
  int links = (group.most_per_node > 1 ? 1 : 0) + (group.nodes > 1 ? 2 : 0);
  cost.links = static_cast<Links>(links);
  if (kind == CollectiveKind::kShift && curve == nullptr) return cost;
  // The time of an empty payload does not depend on bytes.
  Nanos all = time(given);
  cost.latency = std::min(all, time({0}));
  cost.transfer = all - cost.latency;
  return cost;
}

}  // namespace heddle::price
