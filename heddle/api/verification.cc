#include "heddle/api/verification.h"

#include <ATen/Context.h>

#include "heddle/api/agreement.h"
#include "heddle/api/rank_work.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/plan/marks.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/run/models/family.h"
#include "heddle/search/memory/trial.h"

namespace heddle {

bool IsPipeline(std::string_view against) {
  return against != "eager" && against != "none" && against != "processes" && against != "pytorch";
}

namespace {

Failure EagerKnowsNo(std::string_view flag) {
  return Error(Diag::kBadChoice,
               "eager training knows no {}; --against=none trains the graph alone, "
               "--against=PIPELINE compares two pipelines",
               flag);
}

}  // namespace

Status Verification::CheckEager() const {
  if (!given_.parallel.plan_file.empty()) return EagerKnowsNo("--plan");
  if (given_.parallel.gradients != "sum") return EagerKnowsNo("--parallelism.gradients");
  if (given_.parallel.tensor_gradients != "narrow")
    return EagerKnowsNo("--parallelism.tensor_gradients");
  return Done{};
}

bool Verification::ReducesFirst() const { return plan().decisions.reduce_first.value_or(false); }

Status Verification::CheckSteps() const {
  if (against_ == "pytorch") return Done{};
  const LoopOptions& steps = given_.loop;
  if (steps.validation_interval > 0)
    return Error(Diag::kBadChoice,
                 "--validation.interval is {}; only --against=pytorch validates, --against is {}",
                 steps.validation_interval, against_);
  if (against_ == "eager" && ReducesFirst())
    return EagerKnowsNo("--parallelism.reduce_before_scatter");
  if (micro_batches() > 1 && against_ == "eager")
    return Error(Diag::kBadChoice,
                 "the step has {} micro-batches; eager training does not accumulate gradients: use "
                 "--against=pytorch, none, processes or a pipeline",
                 micro_batches());
  return Done{};
}

Result<StepGraphs> Verification::CompiledWith(const std::string& pipeline) const {
  auto compile = [&](const run::CaptureOptions& capture) -> Result<Module> {
    HEDDLE_TRY(PlannedStep pass, PlanPass(given_.model, plan(), capture));
    compile::CompileOptions options = compiled_->options;
    options.pipeline = pipeline;
    HEDDLE_RETURN_IF_ERROR(compile::Compile(pass.module, plan().UpToLowering(), options));
    return std::move(pass.module);
  };
  return CompilePasses({.micro_batches = micro_batches(), .optimizer = optimizer_}, compile);
}

Result<std::unique_ptr<run::Session>> Verification::MakeSession(const StepGraphs& graphs) const {
  if (peers_ == nullptr) return MakeLockstep(graphs);
  run::SessionOptions options;
  options.world_of = [this](const Module& module) { return OwnRank(*peers_, module, device_); };
  return MakeSession(graphs, std::move(options));
}

Result<std::unique_ptr<run::Session>> Verification::MakeLockstep(const StepGraphs& graphs) const {
  run::SessionOptions options;
  options.world = {.device = device_, .reducer = reducer_, .threads = given_.optimization.threads};
  return MakeSession(graphs, std::move(options));
}

Result<std::unique_ptr<run::Session>> Verification::MakeSession(const StepGraphs& graphs,
                                                                run::SessionOptions options) const {
  if (kernels_)
    options.kernels = [this](const Graph& graph) { return run::ArrangeKernels(graph, *kernels_); };
  options.recorder = given_.optimization.Recorder(device_);
  options.notice = [this](const std::string& line) {
    if (leads()) observer_.Note(line);
  };
  options.params = params_;
  options.batches = BatchesOf(*dataset_, run::DataSplit::kTrain, step().model.batch.seq_len);
  options.accumulated = micro_batches();
  options.count_ignored = given_.model.loss_divisor == "all_tokens";
  HEDDLE_TRY(run::Session session, run::Session::Make(step().model, graphs.modules(), options));
  return std::make_unique<run::Session>(std::move(session));
}

run::EagerOptions Verification::Eager() const {
  return {.replicate = step().layout.degree("replicate"),
          .shard = step().layout.degree("shard"),
          .tensor = step().layout.degree("tensor"),
          .expert = step().layout.expert,
          .sequence_parallel = step().layout.preset.sequence_parallel,
          .split_loss = step().layout.preset.split_loss,
          .expert_tensor = given_.parallel.expert_tensor,
          .reducer = reducer_,
          .optimizer = optimizer_,
          .narrow_grads = given_.parallel.reduces_narrow(),
          // Backward on a GPU has one thread for all ranks.
          .threads = device_.is_cpu() ? given_.optimization.threads : 1,
          .params = params_,
          .batches = BatchesOf(*dataset_, run::DataSplit::kTrain, step().model.batch.seq_len),
          .device = device_};
}

Status Verification::Prepare(std::optional<int64_t> processes, int64_t local_rank) {
  HEDDLE_TRY(device_, given_.model.Open(local_rank));
  std::string note = given_.model.DeviceNote(at::hasCUDA());
  if (local_rank == 0 && !note.empty()) observer_.Note(note);
  HEDDLE_RETURN_IF_ERROR(given_.optimization.Check());
  kernels_ = given_.optimization.OwnKernels(
      device_, [this](const std::string& line) { observer_.Note(line); });
  HEDDLE_RETURN_IF_ERROR(given_.parallel.CheckPlanIsFile());
  HEDDLE_TRY(reducer_, given_.optimization.MakeReducer(processes.has_value(), device_.type()));
  if (against_ == "eager") HEDDLE_RETURN_IF_ERROR(CheckEager());
  HEDDLE_TRY(optimizer_, given_.optimization.Optimizer());
  HEDDLE_TRY(schedule_,
             given_.loop.MakeSchedule(given_.optimization.steps, given_.optimization.lr));
  StepGraphOptions graphs{given_.model, given_.parallel, given_.compile, optimizer_};
  graphs.global_batch = given_.loop.global_batch_size;
  graphs.validates = given_.loop.validation_interval > 0;
  graphs.on_compiled = [this](const compile::CompileReport& report) { observer_.Compiled(report); };
  HEDDLE_TRY(compiled_, CompileStep(graphs));
  HEDDLE_RETURN_IF_ERROR(CheckSteps());
  if (against_ == "pytorch") HEDDLE_RETURN_IF_ERROR(LayoutForPyTorch(ReferenceJob()));
  if (processes.value_or(0) > 0)
    HEDDLE_RETURN_IF_ERROR(CheckProcesses(*processes, step().layout.mesh));
  auto seed = static_cast<uint64_t>(given_.optimization.seed);
  run::Model& model = compiled_->planned.model;
  HEDDLE_TRY(params_, given_.model.Params(model, seed));
  HEDDLE_TRY(dataset_, given_.loop.OpenDataset(model, micro_batches() * model.batch.batch, seed));
  options_.steps = given_.optimization.steps;
  options_.lr = [this](int64_t step) { return schedule_->At(step); };
  options_.params = step().model.params.size();
  options_.graph = [this] { return MakeSession(compiled_->graphs); };
  if (against_ == "eager") {
    HEDDLE_RETURN_IF_ERROR(run::CheckEagerExists(step().model, Eager()));
    options_.eager = [this] { return run::MakeEagerRun(step().model, Eager()); };
  }
  if (against_pipeline()) {
    HEDDLE_TRY(other_, CompiledWith(against_));
    options_.other_graph = [this] { return MakeSession(other_); };
  }
  options_.on_step = [this](const run::Session& session, const run::StepRow& row) -> Status {
    if (leads()) observer_.Compared(*this, row);
    return hashes_.Add(given_.optimization, session, step().model, peers_);
  };
  return Done{};
}

Status Verification::Join(run::Peers& peers) {
  peers_ = &peers;
  options_.share_comparison = ShareComparison(peers);
  options_.share_origin = ShareOrigin(peers);
  if (against_ == "processes")
    options_.other_graph = [this] { return MakeLockstep(compiled_->graphs); };
  HEDDLE_RETURN_IF_ERROR(
      AgreeOnJob(peers, given_.values,
                 fmt::format("model {}\nmesh [{}]\nplan {:016x}\ngraph {:016x}",
                             step().model.config.family->name, Format(graph().mesh),
                             Hash64(compile::FormatPlan(plan())), Hash64(heddle::Print(graph())))));
  if (given_.model.load_path.empty()) return Done{};
  StateHash hash;
  run::ParamSource params = hash.Adding(params_);
  for (size_t param = 0; param < step().model.params.size(); ++param)
    HEDDLE_RETURN_IF_ERROR(params(param));
  for (const auto& [name, buffer] : step().model.state) hash.Add(buffer);
  return hash.Agree(peers, given_.model.load_path);
}

PyTorchJob Verification::ReferenceJob() const {
  return {.model = given_.model,
          .parallel = given_.parallel,
          .train = given_.optimization,
          .job = given_.loop,
          .step = step(),
          .accumulated = micro_batches(),
          .reduce_first = ReducesFirst()};
}

Status Verification::CheckReference() const {
  if (against_ != "pytorch") return Done{};
  return PyTorchReference(given_.python, HEDDLE_TORCH_VERSION).CheckTorch();
}

Status Verification::StartReference() {
  if (against_ != "pytorch") return Done{};
  pytorch_.emplace(ReferenceJob(), *dataset_, peers_);
  return pytorch_->Start(given_.python, HEDDLE_TORCH_VERSION, params_,
                         [this](const std::string& line) { observer_.Note(line); });
}

Result<run::VerifyReport> Verification::Train() {
  if (against_ == "pytorch") {
    HEDDLE_TRY(std::unique_ptr<run::Session> session, MakeSession(compiled_->graphs));
    HEDDLE_TRY(report_, pytorch_->Train(*session, options_));
  } else {
    HEDDLE_TRY(report_, run::Verify(options_));
  }
  HEDDLE_RETURN_IF_ERROR(hashes_.Write(given_.optimization, peers_));
  if (report_.differs() && against_pipeline()) HEDDLE_RETURN_IF_ERROR(FindPass());
  if (leads()) observer_.Ended(*this, report_);
  return report_;
}

// One of the two pipelines changes bits of the graph that both begin with.
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
    // Changes the last micro-batch; the others stay as they are.
    auto make = [&](const Module& module) {
      StepGraphs changed = lowered;
      changed.step = module;
      return MakeSession(changed);
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
  const run::ModelConfig& config = step().model.config;
  std::optional<run::AttentionKind> attention = step().model.attention();
  return {.model = std::string(config.family->name),
          .flavor = config.flavor,
          .precision = given_.model.precision,
          .mesh = graph().mesh,
          .processes = peers_ != nullptr,
          .pipeline = plan().decisions.pipeline.value_or(compiled_->options.pipeline),
          .against = against_,
          .reducer = peers_ != nullptr && !device_.is_cpu() ? "nccl" : reducer_.Format(),
          .attention = attention ? std::string(Name(*attention)) : "",
          .pytorch = pytorch_ ? pytorch_->version() : "",
          .device = device_.type(),
          .params = step().model.params};
}

}  // namespace heddle
