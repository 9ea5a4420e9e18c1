// async-tensor-parallel: divides tensor-parallel collectives and the surrounding compute into
// chunks, using the times of a cluster (async_tensor_parallel.h).
#include "heddle/compile/passes/chunks/async_tensor_parallel.h"

namespace heddle::compile {
namespace {

struct AsyncPassOptions {
  std::string memory;
  int64_t chunks = 0;
  bool reorder_compute = true;
};

Result<Changed> AsyncPass(Module& module, const AsyncPassOptions& options, PassContext& context) {
  AsyncOptions async;
  async.chunks = options.chunks;
  HEDDLE_TRY(async.overlap.memory, ParsePeakLimit(options.memory));
  async.overlap.reorder_compute = options.reorder_compute;
  const price::CostModel& model = context.costs();
  Changed changed = Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(AsyncResult result, AsyncTensorParallel(module, graph, model, {}, async));
    changed = changed | result.changed;
    if (result.changed == Changed::kNo)
      context.AddRemark(graph, {}, RemarkKind::kNoEffect,
                        "no collective is divided into chunks: none is exposed because of "
                        "dependences, or chunks would not shorten the step");
    context.Count("collectives", static_cast<int64_t>(result.collectives));
    context.Count("chunks", result.changed == Changed::kYes ? result.chunks : 0);
    context.Count("microseconds_before", result.before.value / 1000);
    context.Count("microseconds_after", result.after.value / 1000);
  }
  return changed;
}

constexpr OptionDef kAsyncTensorParallelOptions[] = {
    Option<&AsyncPassOptions::memory>(
        "memory",
        "memory limit, as in 5GiB, or +1GiB above the peak of the given order (empty: that peak)"),
    Option<&AsyncPassOptions::chunks>("chunks",
                                      "number of chunks, even if the step gets slower (0: the "
                                      "number that simulations find fastest)"),
    Option<&AsyncPassOptions::reorder_compute>(
        "reorder_compute", "allow schedules that compute gradients of weights later")};
constexpr std::string_view kAsyncTensorParallelStats[] = {
    "collectives", "chunks", "microseconds_before", "microseconds_after"};

}  // namespace

HEDDLE_DEFINE_PASS(async_tensor_parallel){
    .name = "async-tensor-parallel",
    .summary =
        "Divides exposed tensor-parallel collectives and the surrounding compute into overlapping "
        "chunks",
    .run = Run<AsyncPass>,
    .make_options = Make<AsyncPassOptions>,
    .options = kAsyncTensorParallelOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRounding,
    .reorders_launches = true,
    .prices = true,
    .stats = kAsyncTensorParallelStats,
};

}  // namespace heddle::compile
