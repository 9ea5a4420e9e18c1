// unroll-pipeline: writes one graph per coordinate of the pipeline axis, from the local graph of
// one micro-batch.
//
//   mesh [pp=2 pipeline, dp=2]
//   graph @step(%tokens batch "tokens", ...) -> (loss %l, ...) { ... }
//
// becomes @step_pp0 and @step_pp1, which run the layers of their stages for all micro-batches in
// the order of the schedule, with comm.send and comm.recv between them. A coordinate has the inputs
// of its own stages; batch inputs appear once per micro-batch. Weights are gathered once. Gradients
// are added in ascending order of the micro-batches, in the type in which they are reduced, and
// reduced once. The last stage computes the gradient norm from all gradients in the order of the
// step, so its bits do not depend on the stages.
#include <charconv>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/pipeline/unroll.h"
#include "heddle/core/analysis/transfers.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"

namespace heddle::compile {
namespace {

struct UnrollOptions {
  std::string schedule = "1F1B";
  int64_t micro_batches = 1;
  std::string stages;
};

Result<std::vector<int64_t>> ParseStages(const std::string& text) {
  std::vector<int64_t> firsts;
  for (std::string_view part : Split(text, '/')) {
    int64_t first = -1;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), first);
    bool number = error == std::errc() && end == part.data() + part.size();
    bool rises = firsts.empty() ? first == 0 : first > firsts.back();
    if (!number || !rises)
      return Error(Diag::kPassOption, "stages `{}` begin with 0 and rise, as in 0/3", text);
    firsts.push_back(first);
  }
  return firsts;
}

Result<AxisId> PipelineAxis(const Module& module) {
  for (size_t i = 0; i < module.mesh.axes().size(); ++i) {
    if (module.mesh.axes()[i].role == AxisRole::kPipeline) return static_cast<AxisId>(i);
  }
  return Error(Diag::kUsage, "the mesh [{}] has no axis of role pipeline", Format(module.mesh));
}

Result<Changed> UnrollPipeline(Module& module, const UnrollOptions& options, PassContext& context) {
  if (module.graphs.size() != 1)
    return Error(Diag::kUsage, "the module has {} graphs; unroll-pipeline needs one step",
                 module.graphs.size());
  HEDDLE_TRY(AxisId axis, PipelineAxis(module));
  HEDDLE_TRY(std::vector<int64_t> firsts, ParseStages(options.stages));
  const Graph& step = module.graphs[0];
  int64_t last = Layers(step).count() + 1;
  if (firsts.back() > last)
    return Error(Diag::kSchedule, "a stage begins at position {}, but the step has {}",
                 firsts.back(), last + 1);
  HEDDLE_TRY(PipelineSchedule schedule,
             FindSchedule(options.schedule, {.ranks = module.mesh[axis].size,
                                             .stages = static_cast<int64_t>(firsts.size()),
                                             .micro_batches = options.micro_batches}));
  StagePlaces places{std::move(firsts), RanksOfStages(schedule)};
  HEDDLE_TRY(StagedStep staged, StagedStep::Find(module, step, places));
  HEDDLE_TRY(std::vector<Graph> graphs, Unroll(module, axis, staged, schedule));
  for (const Graph& graph : graphs)
    context.Count("nodes", static_cast<int64_t>(graph.node_count()));
  module.graphs = std::move(graphs);
  return Changed::kYes;
}

constexpr OptionDef kUnrollOptions[] = {
    Option<&UnrollOptions::schedule>(
        "schedule", "name of the schedule, or its rows, as in \"0F0,0B0/1F0,1B0\""),
    Option<&UnrollOptions::micro_batches>("micro_batches", "number of micro-batches"),
    Option<&UnrollOptions::stages>(
        "stages",
        "first position of each stage, as in 0/3: 0 is the embedding, N the layer N - 1")};
constexpr std::string_view kUnrollStats[] = {"nodes"};

}  // namespace

HEDDLE_DEFINE_PASS(unroll_pipeline){
    .name = "unroll-pipeline",
    .summary =
        "Writes the graph of each pipeline coordinate: its stages for all micro-batches, in "
        "the order of a schedule",
    .run = Run<UnrollPipeline>,
    .make_options = Make<UnrollOptions>,
    .options = kUnrollOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRegrouping,
    .changes_signature = true,
    .stats = kUnrollStats,
    .ensures = CheckTransfers,
};

}  // namespace heddle::compile
