// bucket-by-unit: launches the gathers of a unit's weights together, and the reductions of its
// gradients.
//
// There is one bucket for each unit, phase, kind of collective, communicator, element type and
// reduction, as FSDP2 has one for each parameter group. Experts that are split over other axes than
// the rest of their block therefore get separate buckets. A plan may group other modules together.
// bucket.h describes how a bucket is merged.
#include <algorithm>
#include <map>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/fsdp/bucket.h"
#include "heddle/compile/passes/fsdp/bucket_plan.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

struct BucketByUnitOptions {
  std::string plan;
  std::string order = "parameter";
};

// Maps a parameter to its group in the plan, or to an empty name.
using Groups = std::map<int64_t, std::string>;

// The group of a launch: its own unit, or the group in the plan; empty if its tensors have none or
// several.
std::string GroupOf(const Graph& graph, const Bucketer& bucketer, const Groups& planned,
                    NodeId launch) {
  std::string group;
  for (size_t i = 0; i < graph.operands(launch).size(); ++i) {
    auto found = planned.find(bucketer.ParamOf(launch, i));
    std::string own = found != planned.end() ? found->second : std::string();
    if (own.empty()) own = UnitOf(graph, launch, i);
    if (own.empty() || (i > 0 && own != group)) return "";
    group = std::move(own);
  }
  return group;
}

Result<Changed> BucketByUnit(Graph& graph, const BucketByUnitOptions& options,
                             PassContext& context) {
  HEDDLE_TRY(PayloadOrder order, ParsePayloadOrder(options.order));
  HEDDLE_TRY(BucketPlan plan, BucketPlan::Parse(options.plan));
  HEDDLE_RETURN_IF_ERROR(plan.Check(graph));
  Groups planned;
  for (const Input& input : graph.inputs()) {
    if (input.role == InputRole::kParam) planned.emplace(input.index, plan.GroupOf(input));
  }
  Bucketer bucketer(graph, context, order);
  std::map<std::pair<std::string, BucketKey>, std::vector<NodeId>> groups;
  for (NodeId launch : bucketer.launches()) {
    std::optional<BucketKey> key = KeyOf(graph, launch);
    std::string group = GroupOf(graph, bucketer, planned, launch);
    if (key && !group.empty()) groups[{std::move(group), *key}].push_back(launch);
  }
  if (groups.empty())
    context.AddRemark(graph, ValueId(), RemarkKind::kNoEffect,
                      "no collective gathers the parameters of a unit or reduces their gradients");
  for (const auto& [group, members] : groups) bucketer.Add(members);
  return bucketer.Finish();
}

constexpr OptionDef kBucketByUnitOptions[] = {
    Option<&BucketByUnitOptions::plan>("plan",
                                       "modules that share a bucket, instead of one bucket per "
                                       "unit, as in \"layers.0 layers.1; norm output\""),
    Option<&BucketByUnitOptions::order>("order", kOrderHelp)};

}  // namespace

HEDDLE_DEFINE_PASS(bucket_by_unit){
    .name = "bucket-by-unit",
    .summary = "Launches gathers and reductions of a unit's parameters together",
    .run = Run<BucketByUnit>,
    .make_options = Make<BucketByUnitOptions>,
    .options = kBucketByUnitOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRegrouping,
    .reorders_launches = true,
    .stats = kBucketStats,
};

}  // namespace heddle::compile
