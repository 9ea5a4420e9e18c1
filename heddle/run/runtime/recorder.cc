#include "heddle/run/runtime/recorder.h"

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/collectives.h"

namespace heddle::run {
namespace {

std::vector<const void*> AddressesOf(std::span<const Tensors> inputs_by_rank) {
  std::vector<const void*> addresses;
  for (const Tensors& inputs : inputs_by_rank) {
    for (const at::Tensor& input : inputs)
      addresses.push_back(input.defined() ? input.const_data_ptr() : nullptr);
  }
  return addresses;
}

std::string_view ObstacleAt(const RankProgram& program, NodeId node) {
  const Graph& graph = program.graph();
  if (graph.op(node).effect() == Effect::kRandom) return "it draws random numbers";
  if (CollectiveKindOf(graph[node].op) && program.spans_processes())
    return "it moves tensors between processes";
  bool has_documents = graph.op(node).schema.Find("positions") != nullptr;
  if (has_documents && graph.operands(node).back())
    return "its documents have other lengths in every step";
  // A thread waits for the thread of another coordinate.
  if (IsTransfer(graph, node)) return "it moves tensors between coordinates of a pipeline";
  for (ValueId operand : graph.operands(node)) {
    if (!operand || graph.types().is_async(graph.type(operand))) continue;
    if (graph.types().space(graph.type(operand)) == Space::kHost)
      return "it reads a number from the host";
  }
  return "";
}

}  // namespace

std::optional<std::string> RecordingObstacle(const RankProgram& program) {
  if (program.threads() > 1)
    return fmt::format(
        "ranks run on {} threads, but a recording needs one; set --runtime.threads=1",
        program.threads());
  for (NodeId node : program.graph().nodes()) {
    std::string_view why = ObstacleAt(program, node);
    if (!why.empty())
      return fmt::format("node {}: {}\n  {}", node.index(), why,
                         PrintNode(program.module(), program.graph(), node));
  }
  return std::nullopt;
}

Result<std::vector<Tensors>> StepReplay::Run(RunRecorder& recorder, const RankProgram& program,
                                             std::span<const Tensors> inputs_by_rank, Mode mode) {
  if (recorded_) return Recorded(inputs_by_rank);
  if (!refusal_) refusal_ = RecordingObstacle(program);
  if (!refusal_ && mode == Mode::kWarmUp) return recorder.Run(program, inputs_by_rank);
  if (!refusal_) {
    Result<std::unique_ptr<RecordedRun>> recorded = recorder.Record(program, inputs_by_rank);
    if (recorded.ok()) {
      recorded_ = *std::move(recorded);
      addresses_ = AddressesOf(inputs_by_rank);
      return Recorded(inputs_by_rank);
    }
    refusal_ = recorded.diagnostics()[0].message;
  }
  // Recording computes nothing, so the run is still to do.
  return program.Run(inputs_by_rank);
}

Result<std::vector<Tensors>> StepReplay::Recorded(std::span<const Tensors> inputs_by_rank) {
  HEDDLE_CHECK(AddressesOf(inputs_by_rank) == addresses_,
               "the inputs of a recorded run are not the recorded tensors");
  HEDDLE_RETURN_IF_ERROR(recorded_->Replay());
  return recorded_->outputs();
}

}  // namespace heddle::run
