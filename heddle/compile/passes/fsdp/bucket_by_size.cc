// bucket-by-size: launches gathers of weights and reductions of gradients together, up to a size.
//
// For graphs that have no units. Of all launches of one key, in execution order, each joins the open bucket if there is room for
// it and it depends on nothing in there; otherwise it opens the next. What happens to the members of a bucket is in bucket.h.
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
    return Error(Diag::kPassOption, "`max_bytes` is {}; a bucket holds something",
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
    Option<&BucketBySizeOptions::max_bytes>("max_bytes", "close a bucket at this size"),
    Option<&BucketBySizeOptions::order>("order", kOrderHelp)};

}  // namespace

HEDDLE_DEFINE_PASS(bucket_by_size){
    .name = "bucket-by-size",
    .summary = "launches gathers of weights and reductions of gradients together, up to a size",
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
