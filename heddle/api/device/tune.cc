#include "heddle/api/device/tune.h"

#include <algorithm>

#include "heddle/core/ir/program.h"
#include "heddle/core/kernel/launches.h"

namespace heddle::api {

Result<std::vector<TunedProduct>> Tune(const TuneOptions& options) {
  HEDDLE_TRY(c10::Device device, options.model.Open(0));
  if (!device.is_cuda())
    return Error(Diag::kUsage, "{} is cpu, but only products on cuda are measured", kDeviceFlag);
  HEDDLE_TRY(std::unique_ptr<run::MatmulTuner> tuner, run::MatmulTuner::Open(device));
  HEDDLE_TRY(CompiledStep compiled, CompileStep({.model = options.model,
                                                 .parallel = options.parallel,
                                                 .compile = options.compile,
                                                 .optimizer = {}}));
  if (compiled.planned.plan.decisions.stages)
    return Error(Diag::kUsage,
                 "pipelines do not run on devices yet; remove "
                 "--parallelism.pipeline_parallel_degree");
  Graph graph = ListLaunches(SharedProgram(compiled.graphs.step)).graph;
  std::vector<TunedProduct> products;
  for (NodeId node : graph.nodes()) {
    std::optional<run::MatmulShape> shape = run::MatmulShapeOf(graph, node);
    if (!shape) continue;
    auto found = std::ranges::find(products, *shape, &TunedProduct::shape);
    if (found == products.end()) found = products.insert(found, {.shape = *shape, .choice = {}});
    found->count += compiled.planned.micro_batches();
  }
  for (TunedProduct& product : products) {
    std::optional<run::MatmulChoice> stored = tuner->Find(product.shape);
    if (stored && !options.again) {
      product.choice = *stored;
    } else {
      HEDDLE_TRY(product.choice, tuner->Tune(product.shape));
    }
    if (options.progress)
      options.progress(static_cast<size_t>(&product - products.data()) + 1, products.size());
  }
  return products;
}

}  // namespace heddle::api
