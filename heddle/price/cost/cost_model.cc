#include "heddle/price/cost/cost_model.h"

#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/price/cost/comm/native_model.h"
#include "heddle/price/cost/comm/nccl_model.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle::price {
namespace {
constexpr std::string_view kModelNames[] = {"native", "nccl-2.27"};
constexpr std::string_view kRulesNames[] = {"native", "autoparallel"};
}  // namespace

std::string_view Name(CollectiveModel model) { return kModelNames[static_cast<size_t>(model)]; }

std::string_view Name(TimelineRules rules) { return kRulesNames[static_cast<size_t>(rules)]; }

Result<CostModel> CostModel::Make(Cluster cluster, const CostOptions& options,
                                  std::optional<MeasuredCosts> measured) {
  // So that ranks and bytes of all of them can be counted.
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
                   "the mesh [{}] has more than {} ranks, the most that a cluster holds",
                   Format(mesh), WithCommas(kMostRanks));
  }
  int64_t devices = cluster_.devices_per_node;
  int64_t needed = (ranks + devices - 1) / devices;
  std::optional<int64_t> there = options_.nodes ? options_.nodes : cluster_.nodes;
  if (there && needed > *there) {
    return Error(Diag::kClusterSize,
                 "the mesh [{}] has {} ranks, but {} with {} has {} devices; it takes {} nodes",
                 Format(mesh), ranks, cluster_.name,
                 *there == 1 ? "1 node" : fmt::format("{} nodes", *there), *there * devices,
                 needed);
  }
  return options_.nodes.value_or(needed);
}

CollectiveCost CostModel::Copy(Bytes bytes) const {
  return {WholeNanos(cluster_.host->nanos), WholeNanos(InNanos(bytes, cluster_.host->rate)),
          Links::kNone};
}

Nanos CostModel::Pack(Bytes bytes) const { return StreamTime(cluster_.device, bytes * 2); }

// Ordinary kernels and views do it. Packing a gather copies its tensors together and from there into its buffer; unpacking copies
// each out of what all ranks gave. Packing a reduction is one copy, and its parts are views.
BucketCost CostModel::StudyPacking(bool gather, Bytes given, Bytes result, int64_t members) const {
  const ByteRate& rate = measured_->study->memory;
  BucketCost cost;
  cost.ahead = WholeNanos(InNanos(given * (gather ? 5 : 2), rate)) +
               kStudyLaunch * (members + (gather ? 4 : 2));
  cost.behind = kStudyLaunch * (gather ? 3 + 3 * members : 2 + 2 * members);
  if (gather) cost.behind += WholeNanos(InNanos(result * 2, rate));
  return cost;
}

Result<BucketCost> CollectiveCosts::Bucket(CollectiveKind kind, Bytes given, int64_t members,
                                           const Axes& over) {
  HEDDLE_TRY(CollectiveCost alone, Cost(kind, given, over));
  bool gather = kind == CollectiveKind::kAllGather;
  Bytes result = gather ? given * Group(over).ranks : Bytes{};
  BucketCost cost;
  bool study = model_.options().rules == TimelineRules::kAutoParallel;
  if (study && model_.measured() != nullptr && model_.measured()->study && members > 1) {
    cost = model_.StudyPacking(gather, given, result, members);
  } else if (!study && members > 1) {
    cost.length = model_.Pack(given);
    if (gather) cost.behind = model_.Pack(result);
  } else if (study) {
    cost.behind = kStudyLaunch * members;
  }
  cost.length += alone.total();
  if (study) {
    cost.ahead += kStudyLaunch;
    cost.length += kStudyLaunch;
  }
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
    Bytes counted = CountedBytes(kind, bytes, group.ranks);
    return model_.options().collectives == CollectiveModel::kNccl
               ? NcclTime(kind, counted, group, *model_.cluster().nccl)
               : NativeTime(kind, counted, group, model_.cluster());
  };
  CollectiveCost cost;
  int links = (group.most_per_node > 1 ? 1 : 0) + (group.nodes > 1 ? 2 : 0);
  cost.links = static_cast<Links>(links);
  // What an empty payload takes is not due to bytes.
  Nanos all = time(given);
  cost.latency = std::min(all, time({0}));
  cost.transfer = all - cost.latency;
  return cost;
}

}  // namespace heddle::price
