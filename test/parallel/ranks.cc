#include "test/parallel/ranks.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>

#include "heddle/passes/passes.h"
#include "heddle/runtime/program.h"
#include "heddle/runtime/shards.h"
#include "heddle/runtime/world.h"

namespace heddle {
namespace {

const Placement& PlacementOf(const Graph& graph, const GlobalType& global) {
  return graph.placements()[global.type ? global.placement : PlacementTable::kReplicated];
}

}  // namespace

void RunPasses(Module& module, std::string_view text) {
  Result<Pipeline> pipeline = ParsePipeline(text, Passes());
  ASSERT_TRUE(pipeline.ok()) << Format(pipeline.diagnostics());
  Result<RunReport> report = RunPipeline(module, *pipeline);
  ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
}

Module Parallelized(Module module, const Plan& plan, bool reduce_first) {
  RunPasses(module, PlanningPipeline(FormatPlan(plan)));
  if (testing::Test::HasFatalFailure()) return module;
  RunPasses(module, LoweringPipeline(reduce_first));
  return module;
}

std::vector<at::Tensor> RunWhole(const Module& module, const std::vector<at::Tensor>& inputs) {
  Result<Program> program = Program::Compile(module, module.graphs[0]);
  EXPECT_TRUE(program.ok()) << Format(program.diagnostics());
  if (!program.ok()) return {};
  Result<std::vector<at::Tensor>> out = program->Run(inputs);
  EXPECT_TRUE(out.ok()) << Format(out.diagnostics());
  return out.ok() ? *out : std::vector<at::Tensor>();
}

std::vector<at::Tensor> RunOnRanks(const Module& module, const std::vector<at::Tensor>& inputs) {
  const Graph& graph = module.graphs[0];
  Result<LockstepWorld> world = LockstepWorld::Compile(module, graph);
  EXPECT_TRUE(world.ok()) << Format(world.diagnostics());
  if (!world.ok()) return {};
  std::vector<std::vector<at::Tensor>> by_rank(static_cast<size_t>(world->ranks()));
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      by_rank[rank].push_back(ShardOf(inputs[i], PlacementOf(graph, graph.inputs()[i].global),
                                      module.mesh, static_cast<int64_t>(rank)));
    }
  }
  Result<std::vector<std::vector<at::Tensor>>> out = world->Run(by_rank);
  EXPECT_TRUE(out.ok()) << Format(out.diagnostics());
  if (!out.ok()) return {};
  std::vector<at::Tensor> whole;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    Result<at::Tensor> assembled = AssembledOutput(module, o, *out);
    EXPECT_TRUE(assembled.ok()) << Format(assembled.diagnostics());
    whole.push_back(assembled.ok() ? *assembled : at::Tensor());
  }
  return whole;
}

Result<at::Tensor> AssembledOutput(const Module& local, size_t o,
                                   const std::vector<std::vector<at::Tensor>>& by_rank) {
  const Graph& graph = local.graphs[0];
  const Output& output = graph.outputs()[o];
  TypeId type = output.global.type ? output.global.type : graph.type(output.value);
  std::span<const Dim> dims = graph.types().dims(type);
  std::vector<at::Tensor> parts;
  for (const auto& outputs : by_rank) parts.push_back(outputs[o]);
  return Assemble(parts, graph.placements()[output.global.placement], local.mesh,
                  {dims.data(), dims.size()});
}

double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return INFINITY;
  if (a.numel() == 0) return 0;
  at::Tensor x = a.to(at::kDouble);
  at::Tensor y = b.to(at::kDouble);
  double most = at::max(at::abs(y)).item().toDouble();
  double difference = at::max(at::abs(at::sub(x, y))).item().toDouble();
  // NaN on either side is a difference.
  if (!(difference == difference)) return INFINITY;
  return difference / std::max(most, 1e-30);
}

}  // namespace heddle
