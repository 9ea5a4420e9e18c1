// bucket-by-size: launches gathers of weights and reductions of gradients together, up to a size.
//
// For graphs that have no units. Of all launches of one key, in execution order, each joins the open bucket if there is room for
// it and it depends on nothing in there; otherwise it opens the next. What happens to the members of a bucket is in bucket.h.
#include <map>

#include "heddle/base/text.h"
#include "heddle/pass/pass.h"
#include "heddle/passes/fsdp/bucket.h"

namespace heddle {
namespace {

struct BucketBySizeOptions {
  Bytes max_bytes{int64_t{64} << 20};
  std::string order = "parameter";
};

// What travels: gathered weights, or gradients before they are scattered.
Bytes SizeOf(const Graph& graph, NodeId launch) {
  const TypeTable& types = graph.types();
  Bytes in;
  for (ValueId v : graph.operands(launch)) in += types.bytes(graph.type(v));
  return std::max(in, types.bytes(graph.type(graph[launch].first_result)));
}

struct Open {
  std::vector<NodeId> members;
  Bytes bytes;
};

Result<Changed> BucketBySize(Graph& graph, const BucketBySizeOptions& options,
                             PassContext& context) {
  HEDDLE_TRY(PayloadOrder order, ParsePayloadOrder(options.order));
  if (options.max_bytes.value <= 0)
    return Error(Diag::kPassOption, "`max_bytes` is {}; a bucket holds something",
                 options.max_bytes.value);
  Bucketer bucketer(graph, context, order);
  std::map<BucketKey, Open> open;
  for (NodeId launch : bucketer.launches()) {
    std::optional<BucketKey> key = KeyOf(graph, launch);
    if (!key) continue;
    Open& bucket = open[*key];
    Bytes size = SizeOf(graph, launch);
    bool fits = bucket.bytes + size <= options.max_bytes;
    if (!bucket.members.empty() && (!fits || !bucketer.MayJoin(bucket.members, launch))) {
      bucketer.Add(bucket.members);
      bucket = {};
    }
    bucket.members.push_back(launch);
    bucket.bytes += size;
  }
  if (open.empty())
    context.AddRemark(graph, ValueId(), RemarkKind::kNoEffect,
                      "no collective gathers weights or reduces gradients");
  for (const auto& [key, bucket] : open) bucketer.Add(bucket.members);
  return bucketer.Finish();
}

constexpr OptionDef kOptions[] = {
    Option<&BucketBySizeOptions::max_bytes>("max_bytes", "close a bucket at this size"),
    Option<&BucketBySizeOptions::order>("order", kOrderHelp)};

}  // namespace

HEDDLE_DEFINE_PASS(bucket_by_size){
    .name = "bucket-by-size",
    .summary = "launches gathers of weights and reductions of gradients together, up to a size",
    .run = Run<BucketBySize>,
    .make_options = Make<BucketBySizeOptions>,
    .options = kOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRegrouping,
    .reorders_launches = true,
    .stats = kBucketStats,
};

}  // namespace heddle
