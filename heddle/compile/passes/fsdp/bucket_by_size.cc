// bucket-by-size: launches gathers of weights and reductions of gradients together, up to a size.
//
// For graphs without units. Launches with equal keys are grouped in execution order: a launch joins
// the open bucket if it fits and depends on no member; otherwise it opens the next bucket. bucket.h
// describes how a bucket is merged.
#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/fsdp/bucket.h"

namespace heddle::compile {
namespace {

struct BucketBySizeOptions {
  Bytes max_bytes{int64_t{64} << 20};
  std::string order = "parameter";
};

Result<Changed> BucketBySize(Graph& graph, const BucketBySizeOptions& options,
                             PassContext& context) {
  HEDDLE_TRY(PayloadOrder order, ParsePayloadOrder(options.order));
  if (options.max_bytes.value <= 0)
    return Error(Diag::kPassOption, "`max_bytes` is {}; expected a size above 0",
                 options.max_bytes.value);
  Bucketer bucketer(graph, context, order);
  std::vector<std::vector<NodeId>> buckets = BucketsBySize(graph, bucketer, options.max_bytes);
  if (buckets.empty())
    context.AddRemark(graph, ValueId(), RemarkKind::kNoEffect,
                      "no collective gathers weights or reduces gradients");
  for (const std::vector<NodeId>& bucket : buckets) bucketer.Add(bucket);
  return bucketer.Finish();
}

constexpr OptionDef kBucketBySizeOptions[] = {
    Option<&BucketBySizeOptions::max_bytes>("max_bytes", "maximum size of a bucket"),
    Option<&BucketBySizeOptions::order>("order", kOrderHelp)};

}  // namespace

HEDDLE_DEFINE_PASS(bucket_by_size){
    .name = "bucket-by-size",
    .summary = "Launches gathers of weights and reductions of gradients together, up to a size",
    .run = Run<BucketBySize>,
    .make_options = Make<BucketBySizeOptions>,
    .options = kBucketBySizeOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRegrouping,
    .reorders_launches = true,
    .stats = kBucketStats,
};

}  // namespace heddle::compile
