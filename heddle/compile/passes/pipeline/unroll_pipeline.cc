// unroll-pipeline: writes one graph per coordinate of the pipeline axis, from the local graph of
// one micro-batch.
//
//   mesh [pp=2 pipeline, dp=2]
//   graph @step(%tokens batch "tokens", ...) -> (loss %l, ...) { ... }
//
// becomes @step_pp0 and @step_pp1, which run the layers of their stages for all micro-batches in
// the order of the schedule, with comm.send and comm.recv between them. A coordinate has the inputs
// of its own stages; batch inputs appear once per micro-batch. The last stage computes the gradient
// norm from all gradients in the order of the step, so its bits do not depend on the stages.
//
// Weights are gathered once, or by the first action of each stage in a group of `gather_every`
// micro-batches. Gradients are added in ascending order of the micro-batches, in the type in which
// they are reduced, and reduced once, or after each `reduce_every` micro-batches; then the reduced
// gradients are added. The unit of such a collective has the number of its group: `layers.0#2`.
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
  int64_t gather_every = 0;
  int64_t reduce_every = 0;
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

// Ranks need equal parts of each micro-batch, because stages exchange tensors of fixed sizes.
Status CheckBatchInputs(const Module& module, int64_t micro_batches) {
  const Graph& step = module.graphs[0];
  for (const Input& input : step.inputs()) {
    TypeId whole = input.global.type ? input.global.type : step.type(input.value);
    if (input.role != InputRole::kBatch || step.types().dims(whole).empty()) continue;
    const int64_t rows = step.types().dims(whole)[0];
    const int64_t ranks = module.mesh.Size(step.placements()[input.global.placement].split(0));
    if (rows % ranks == 0) continue;
    return Error(Diag::kSchedule,
                 "a micro-batch has {}, which {} data-parallel ranks cannot divide evenly; with {} "
                 "micro-batches, use a multiple of {} sequences (--training.local_batch_size, or "
                 "`batch` in the plan), or other micro-batches (--parallelism.num_pp_microbatches, "
                 "or `stages` in the plan)",
                 Counted(rows, "sequence"), ranks, micro_batches, micro_batches * ranks);
  }
  return Done{};
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
  if (options.gather_every < 0 || options.reduce_every < 0)
    return Error(Diag::kPassOption,
                 "gather_every is {} and reduce_every is {}; expected at least 0",
                 options.gather_every, options.reduce_every);
  HEDDLE_RETURN_IF_ERROR(CheckBatchInputs(module, options.micro_batches));
  HEDDLE_TRY(StagedStep staged, StagedStep::Find(module, step, places));
  HEDDLE_TRY(std::vector<Graph> graphs,
             Unroll(module, axis, staged, schedule, {options.gather_every, options.reduce_every}));
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
        "stages", "first position of each stage, as in 0/3: 0 is the embedding, N the layer N - 1"),
    Option<&UnrollOptions::gather_every>("gather_every",
                                         "micro-batches per gather of weights (0: once)"),
    Option<&UnrollOptions::reduce_every>("reduce_every",
                                         "micro-batches per reduction of gradients (0: once)")};
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
