// overlap: overlaps bucketed collectives with compute within a memory limit, for a cluster
// (overlap.h).
#include "heddle/compile/passes/overlap/overlap.h"

namespace heddle::compile {
namespace {

struct OverlapPassOptions {
  std::string memory;
  std::string cap = "auto";
  std::string effort = "normal";
  bool reorder_compute = false;
  bool strict = false;
};

Result<Changed> OverlapPass(Module& module, const OverlapPassOptions& options,
                            PassContext& context) {
  OverlapOptions overlap;
  HEDDLE_TRY(overlap.memory, ParsePeakLimit(options.memory));
  HEDDLE_TRY(overlap.buckets, ParseBucketRule(options.cap));
  HEDDLE_TRY(overlap.effort, ParseEffort(options.effort));
  overlap.reorder_compute = options.reorder_compute;
  overlap.strict = options.strict;
  const price::CostModel& model = context.costs();
  Changed changed = Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(OverlapResult result, Overlap(module, graph, model, {}, overlap, context));
    changed = changed | result.changed;
    context.Count("microseconds_before", result.before.makespan.value / 1000);
    context.Count("microseconds_after", result.after.makespan.value / 1000);
    context.Count("light_moved", result.moved);
  }
  return changed;
}

constexpr OptionDef kOverlapOptions[] = {
    Option<&OverlapPassOptions::memory>(
        "memory",
        "memory limit, as in 5GiB, or +1GiB above the peak of the given order (empty: that peak)"),
    Option<&OverlapPassOptions::cap>("cap",
                                     "auto, none, or the maximum size of a bucket, as in 25MiB"),
    Option<&OverlapPassOptions::effort>("effort", "search effort: fast, normal or best"),
    Option<&OverlapPassOptions::reorder_compute>(
        "reorder_compute",
        "allow matrix products and attention to be reordered: gradients of weights run later. "
        "Otherwise only other compute moves"),
    Option<&OverlapPassOptions::strict>(
        "strict", "keep the order of collectives and of compute, and merge nothing")};
constexpr std::string_view kOverlapStats[] = {"microseconds_before", "microseconds_after",
                                              "light_moved"};

}  // namespace

HEDDLE_DEFINE_PASS(overlap){
    .name = "overlap",
    .summary = "Overlaps bucketed collectives with compute within a memory limit",
    .run = Run<OverlapPass>,
    .make_options = Make<OverlapPassOptions>,
    .options = kOverlapOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRegrouping,
    .reorders_launches = true,
    .prices = true,
    .stats = kOverlapStats,
};

}  // namespace heddle::compile
