#include "heddle/run/runtime/whole.h"

#include "heddle/run/runtime/shards.h"

namespace heddle::run {

TypeId WholeType(const Graph& graph, ValueId value, const GlobalType& global) {
  return global.type ? global.type : graph.type(value);
}

Result<at::Tensor> AssembleOutput(const Module& local, size_t o,
                                  std::span<const std::vector<at::Tensor>> outputs_by_rank) {
  const Graph& graph = local.graphs[0];
  const Output& output = graph.outputs()[o];
  std::span<const Dim> dims = graph.types().dims(WholeType(graph, output.value, output.global));
  std::vector<at::Tensor> parts;
  for (const std::vector<at::Tensor>& outputs : outputs_by_rank) parts.push_back(outputs[o]);
  return Assemble(parts, graph.placements()[output.global.placement], local.mesh,
                  {dims.data(), dims.size()});
}

}  // namespace heddle::run
