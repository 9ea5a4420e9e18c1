// Runs a graph on whole tensors, for tests. The runtime keeps shards on their ranks.
#pragma once

#include <span>
#include <vector>

#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/runtime/shards.h"

namespace heddle::run {

// Assembles output `o` of a local graph from the outputs of all ranks.
inline Result<at::Tensor> AssembleOutput(const Module& local, size_t o,
                                         std::span<const std::vector<at::Tensor>> outputs_by_rank) {
  const Graph& graph = local.graphs[0];
  const Output& output = graph.outputs()[o];
  std::span<const Dim> dims = graph.types().dims(WholeType(graph, output.value, output.global));
  std::vector<at::Tensor> parts;
  for (const std::vector<at::Tensor>& outputs : outputs_by_rank) parts.push_back(outputs[o]);
  return Assemble(parts, graph.placements()[output.global.placement], local.mesh,
                  {dims.data(), dims.size()});
}

// Runs the first graph on all ranks of its mesh, each with its shards of `inputs`, and assembles
// the outputs. A global graph has no mesh: it runs on one rank.
inline Result<std::vector<at::Tensor>> RunOnWhole(const Module& module,
                                                  std::span<const at::Tensor> inputs) {
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(RankProgram program, RankProgram::Compile(module, graph));
  std::vector<std::vector<at::Tensor>> by_rank(program.ranks().size());
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Placement& placement = graph.placements()[graph.inputs()[i].global.placement];
      at::Tensor shard = ShardOf(inputs[i], placement, module.mesh, static_cast<int64_t>(rank));
      // Neither the caller's tensor nor another rank's is written over.
      by_rank[rank].push_back(program.updates(i) ? shard.clone() : shard);
    }
  }
  HEDDLE_TRY(std::vector<std::vector<at::Tensor>> outputs, program.Run(by_rank));
  std::vector<at::Tensor> whole;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    HEDDLE_TRY(at::Tensor output, AssembleOutput(module, o, outputs));
    whole.push_back(std::move(output));
  }
  return whole;
}

}  // namespace heddle::run
