#include "heddle/api/verification.h"

#include <algorithm>

#include "heddle/api/rank_work.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/marks.h"
#include "heddle/core/ir/program.h"
#include "heddle/run/models/family.h"
#include "heddle/search/memory/trial.h"

namespace heddle {

bool IsPipeline(std::string_view against) {
  return against != "eager" && against != "none" && against != "processes" && against != "pytorch";
}

namespace {

bool HasHeadTail(const Mesh& mesh) {
  return std::ranges::any_of(mesh.axes(),
                             [](const MeshAxis& axis) { return axis.role == AxisRole::kHeadTail; });
}

Failure EagerKnowsNo(std::string_view flag) {
  return Error(Diag::kBadChoice,
               "eager training does not support {}; use --against=none to train the graph only, or "
               "--against=PIPELINE to compare two pipelines",
               flag);
}

}  // namespace

Status Verification::CheckEager() const {
  if (!given_.parallel.plan_file.empty()) return EagerKnowsNo("--plan");
  if (given_.parallel.gradients != "sum") return EagerKnowsNo("--parallelism.gradients");
  if (given_.parallel.wide_tensor_gradients) return EagerKnowsNo("--parallelism.tensor_gradients");
  if (RoundsUpdatesTwice())
    return Error(Diag::kBadChoice,
                 "on a GPU a loop of ATen ops rounds updates twice, and eager training once, so "
                 "their bits differ; verify it with {}=cpu, or use --against=none",
                 kDeviceFlag);
  return Done{};
}

bool Verification::ReducesFirst() const { return plan().decisions.reduce_first.value_or(false); }

Status Verification::CheckSteps() const {
  if (against_ == "pytorch") return Done{};
  const LoopOptions& steps = given_.loop;
  if (steps.validation_interval > 0)
    return Error(
        Diag::kBadChoice,
        "--validation.interval is {}, but --against is {}; only --against=pytorch validates",
        steps.validation_interval, against_);
  if (against_ == "eager" && ReducesFirst())
    return EagerKnowsNo("--parallelism.reduce_before_scatter");
  return Done{};
}

Result<StepGraphs> Verification::CompiledWith(const std::string& pipeline) const {
  auto compile = [&](const run::CaptureOptions& capture) -> Result<Module> {
    HEDDLE_TRY(PlannedStep pass, PlanPass(model_options_, plan(), capture));
    compile::CompileOptions options = compiled_->options;
    options.pipeline = pipeline;
    HEDDLE_RETURN_IF_ERROR(compile::Compile(pass.module, plan().UpToLowering(), options));
    return std::move(pass.module);
  };
  return CompilePasses(
      {.micro_batches = micro_batches(), .optimizer = given_.optimization.optimizer}, compile);
}

Status Verification::CheckPipeline() const {
  bool can = against_ == "eager" || against_ == "none" || against_ == "processes";
  if (!has_pipeline() || can) return Done{};
  return Error(Diag::kBadChoice,
               "--against is {}, but a pipeline can be compared with eager training and with "
               "processes only yet; use --against=eager, processes or none",
               against_);
}

namespace {

// The coordinate of a pipeline that has each parameter.
std::vector<int64_t> CoordinatesOfParams(const Module& step, size_t params) {
  std::vector<int64_t> coordinates(params);
  for (size_t at = 0; at < step.graphs.size(); ++at) {
    for (const Input& input : step.graphs[at].inputs()) {
      if (input.role == InputRole::kParam)
        coordinates[static_cast<size_t>(input.index)] = static_cast<int64_t>(at);
    }
  }
  return coordinates;
}

}  // namespace

run::EagerOptions Verification::Eager() const {
  return {.replicate = planned().layout.degree("replicate"),
          .shard = planned().layout.degree("shard"),
          .context = planned().layout.degree("context"),
          .context_split = {.heads = planned().layout.preset.context_heads,
                            .ring = planned().layout.preset.context_ring,
                            .head_tail = HasHeadTail(planned().plan.mesh),
                            .latents = GathersLatents(planned().plan)},
          .tensor = planned().layout.degree("tensor"),
          .expert = planned().layout.expert,
          .sequence_parallel = planned().layout.preset.sequence_parallel,
          .split_loss = planned().layout.preset.split_loss,
          .batches_of_step = micro_batches(),
          .micro_batches = planned().pipeline_micro_batches(),
          .reduce_every = has_pipeline() ? plan().decisions.stages->reduce_every : 0,
          .coordinates = has_pipeline() ? CoordinatesOfParams(graphs().step, model().params.size())
                                        : std::vector<int64_t>(),
          .expert_tensor = given_.parallel.expert_tensor,
          .reducer = reducer_,
          .optimizer = given_.optimization.optimizer,
          .narrow_grads = given_.parallel.narrow_gradients,
          // On a GPU, threads gain nothing: the ranks share it.
          .threads = device_.is_cpu() ? given_.optimization.threads : 1,
          .params = params_,
          .batches = BatchesOf(*dataset_, run::DataSplit::kTrain, model().batch.seq_len),
          .device = device_};
}

Status Verification::Prepare(std::optional<int64_t> processes, std::optional<int64_t> local_rank) {
  HEDDLE_RETURN_IF_ERROR(OpenDevice(processes, local_rank));
  if (against_ == "eager") HEDDLE_RETURN_IF_ERROR(CheckEager());
  HEDDLE_RETURN_IF_ERROR(CompileGraphs(/*for_training=*/false));
  HEDDLE_RETURN_IF_ERROR(CheckSteps());
  HEDDLE_RETURN_IF_ERROR(CheckPipeline());
  if (against_ == "pytorch") HEDDLE_RETURN_IF_ERROR(LayoutForPyTorch(ReferenceJob()));
  HEDDLE_RETURN_IF_ERROR(OpenInputs());
  options_.steps = given_.optimization.steps;
  options_.lr = [this](int64_t step) { return schedule_->At(step); };
  options_.params = model().params.size();
  options_.graph = [this] { return MakeRun(graphs()); };
  if (against_ == "eager") {
    HEDDLE_RETURN_IF_ERROR(run::CheckEagerExists(model(), Eager()));
    options_.eager = [this] { return run::MakeEagerRun(model(), Eager()); };
  }
  if (against_pipeline()) {
    HEDDLE_TRY(other_, CompiledWith(against_));
    options_.other_graph = [this] { return MakeRun(other_); };
  }
  options_.on_step = [this](const run::TrainingRun& run, const run::StepRow& row) -> Status {
    if (leads()) watcher_.Compared(*this, row);
    return hashes_.Add(given_.optimization, run, model(), peers_);
  };
  return Done{};
}

Status Verification::Join(run::Peers& peers) {
  options_.share_comparison = ShareComparison(peers);
  options_.share_origin = ShareOrigin(peers);
  if (against_ == "processes")
    options_.other_graph = [this] { return MakeRun(graphs(), /*lockstep=*/true); };
  HEDDLE_RETURN_IF_ERROR(Agree(peers));
  if (given_.model.load_path.empty()) return Done{};
  StateHash hash;
  run::ParamSource params = hash.Adding(params_);
  for (size_t param = 0; param < model().params.size(); ++param)
    HEDDLE_RETURN_IF_ERROR(params(param));
  for (const auto& [name, buffer] : model().state) hash.Add(buffer);
  return hash.Agree(peers, given_.model.load_path);
}

PyTorchJob Verification::ReferenceJob() const {
  return {.model = given_.model,
          .parallel = given_.parallel,
          .train = given_.optimization,
          .job = given_.loop,
          .step = planned(),
          .accumulated = micro_batches(),
          .reduce_first = ReducesFirst()};
}

Status Verification::CheckReference() const {
  if (against_ != "pytorch") return Done{};
  return PyTorchReference(python_, HEDDLE_TORCH_VERSION).CheckTorch();
}

Status Verification::StartReference() {
  if (against_ != "pytorch") return Done{};
  pytorch_.emplace(ReferenceJob(), *dataset_, peers_);
  return pytorch_->Start(python_, HEDDLE_TORCH_VERSION, params_,
                         [this](const std::string& line) { Say(line); });
}

Result<run::VerifyReport> Verification::Train() {
  if (against_ == "pytorch") {
    HEDDLE_TRY(std::unique_ptr<run::GraphRun> run, MakeRun(graphs()));
    HEDDLE_TRY(report_, pytorch_->Train(*run, options_));
  } else {
    HEDDLE_TRY(report_, run::Verify(options_));
  }
  HEDDLE_RETURN_IF_ERROR(hashes_.Write(given_.optimization, peers_));
  if (report_.differs() && against_pipeline()) HEDDLE_RETURN_IF_ERROR(FindPass());
  if (leads()) watcher_.Ended(*this, report_);
  return report_;
}

// Finds the pass of one of the two pipelines that changes bits.
Status Verification::FindPass() {
  HEDDLE_TRY(StepGraphs lowered, CompiledWith(""));
  compile::CompileOptions options = compiled_->options;
  std::string own = plan().decisions.pipeline.value_or(options.pipeline);
  for (const std::string& name : {own, against_}) {
    options.pipeline = name;
    StepGraphs begin = lowered;
    std::vector<std::string> notes;
    HEDDLE_TRY(compile::Pipeline pipeline,
               compile::PassesAfterLowering(
                   begin.step, name == own ? plan() : plan().UpToLowering(), options, notes));
    // Only the last micro-batch changes; the others stay the same.
    auto make = [&](const Module& module) {
      StepGraphs changed = lowered;
      changed.step = module;
      return MakeRun(changed);
    };
    HEDDLE_TRY(report_.pass, run::FirstDifferingPass(begin.step, pipeline, options.manager,
                                                     options_, report_.rows.back().step, make));
    if (!report_.pass) continue;
    report_.pass = fmt::format("{} of pipeline `{}`", *report_.pass, name);
    break;
  }
  return Done{};
}

VerifiedJob Verification::Job() const {
  const run::ModelConfig& config = model().config;
  std::optional<run::AttentionKind> attention = model().attention();
  return {.model = std::string(config.family->name),
          .flavor = config.flavor,
          .precision = std::string(Name(given_.model.precision)),
          .mesh = graphs().step.mesh,
          .processes = peers_ != nullptr,
          .pipeline = given_.compile.PipelineName(planned().plan.decisions),
          .against = against_,
          .reducer = peers_ != nullptr && !device_.is_cpu() ? "nccl" : reducer_.Format(),
          .attention = attention ? std::string(Name(*attention)) : "",
          .pytorch = pytorch_ ? pytorch_->version() : "",
          .device = device_.type(),
          .params = model().params};
}

namespace api {

Result<run::VerifyReport> Verify(const VerificationOptions& options, VerifyObserver& observer) {
  HEDDLE_TRY(std::optional<run::PeerAddress> address, run::PeerAddress::FromEnvironment());
  Verification verification(options, observer);
  if (address) {
    HEDDLE_RETURN_IF_ERROR(verification.Prepare(address->world_size, address->local_rank));
    auto work = [&](run::Peers& peers) -> Result<run::VerifyReport> {
      HEDDLE_RETURN_IF_ERROR(verification.Join(peers));
      HEDDLE_RETURN_IF_ERROR(verification.StartReference());
      return verification.Train();
    };
    return WorkAsRank<run::VerifyReport>(*address, options.timeout, work, observer);
  }
  HEDDLE_RETURN_IF_ERROR(verification.Prepare(std::nullopt));
  HEDDLE_RETURN_IF_ERROR(verification.StartReference());
  Result<run::VerifyReport> report = verification.Train();
  if (!report.ok()) observer.Failed(report.diagnostics());
  return report;
}

}  // namespace api
}  // namespace heddle
