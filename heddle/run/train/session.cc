#include "heddle/run/train/session.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "heddle/core/base/clock.h"
#include "heddle/run/aten/dtype.h"

namespace heddle::run {
namespace {

constexpr std::string_view kStateKindNames[] = {"parameter", "exp_avg", "exp_avg_sq",
                                                "momentum_buffer", "gradient"};

// Number of runs as launches before recording. The first runs of a kernel load it, plan it and
// allocate its workspace, which cannot be recorded.
constexpr int64_t kWarmUpRuns = 2;

DType ParamType(const Model& model) {
  return model.numerics.compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

}  // namespace

std::string_view Name(StateKind kind) { return kStateKindNames[static_cast<size_t>(kind)]; }

ParamSource InitialParams(const Model& model, uint64_t seed) {
  return [&model, seed](size_t param) -> Result<at::Tensor> {
    return InitParam(model, model.params[param], seed, ParamType(model));
  };
}

BatchSource SyntheticBatches(const Model& model, uint64_t seed) {
  return [&model, seed](int64_t step, int64_t first_row, int64_t rows) -> Result<Batch> {
    return MakeBatch(model.config.vocab_size, rows, model.batch.seq_len, seed, step, first_row);
  };
}

Result<Session> Session::Make(const Model& model, const StepModules& modules,
                              const SessionOptions& options) {
  auto copies = std::make_shared<WeightCopies>();
  auto make = [&](const Module& module) -> Result<BoundStep> {
    RankProgramOptions program = options.program;
    if (options.program_of) {
      HEDDLE_TRY(program, options.program_of(module));
    }
    if (options.kernels)
      program.kernels = [&](const Graph& graph) { return options.kernels(graph, copies); };
    return BoundStep::Make(model, module, program);
  };
  HEDDLE_TRY(BoundStep step, make(*modules.step));
  Session session(std::move(step));
  session.copies_ = copies;
  for (auto [module, bound] :
       {std::pair(modules.first, &session.first_), std::pair(modules.more, &session.more_),
        std::pair(modules.forward, &session.forward_)}) {
    if (module == nullptr) continue;
    HEDDLE_TRY(*bound, make(*module));
  }
  session.ahead_ = std::make_unique<BatchesAhead>(options.batches);
  session.batches_ = [ahead = session.ahead_.get()](int64_t number, int64_t first_row,
                                                    int64_t rows) {
    return ahead->Get(number, first_row, rows);
  };
  session.accumulated_ = options.accumulated;
  session.count_ignored_ = options.count_ignored;
  session.numbers_ = StepNumbers(session.program().device());
  HEDDLE_RETURN_IF_ERROR(session.InitState(model, options));
  HEDDLE_RETURN_IF_ERROR(session.InitBuffers(model, options));
  for (BoundStep* bound : session.bound_steps()) bound->Bind(session.states_, session.numbers_);
  session.MakeRecorders(options);
  session.losses_.resize(session.ranks().size());
  if (options.saved) session.steps_ = options.saved->steps;
  return session;
}

void Session::MakeRecorders(const SessionOptions& options) {
  notice_ = options.notice;
  if (!options.recorder) return;
  for (BoundStep* bound : bound_steps()) {
    bool forward = forward_ && bound == &*forward_;
    std::unique_ptr<RunRecorder>& recorder = forward ? forward_recorder_ : recorder_;
    if (!recorder) {
      Result<std::unique_ptr<RunRecorder>> made = options.recorder();
      if (!made.ok()) {
        notice_("steps run as launches: " + made.diagnostics()[0].message);
        return;
      }
      recorder = *std::move(made);
    }
    bound->RecordWith(*recorder);
  }
}

std::vector<BoundStep*> Session::bound_steps() {
  std::vector<BoundStep*> all = {&step_};
  for (std::optional<BoundStep>* bound : {&first_, &more_, &forward_}) {
    if (*bound) all.push_back(&**bound);
  }
  return all;
}

std::optional<size_t> Session::InputOf(StateKind kind, size_t param) const {
  const BoundStep::ParamPlaces& places = step_.places(param);
  switch (kind) {
    case StateKind::kParam: return places.value;
    case StateKind::kExpAvg: return places.exp_avg;
    case StateKind::kExpAvgSq: return places.exp_avg_sq;
    case StateKind::kMomentum: return places.momentum_buffer;
    case StateKind::kGrad: return places.grad_sum;
  }
  return std::nullopt;
}

Status Session::InitState(const Model& model, const SessionOptions& options) {
  states_.resize(ranks().size());
  for (RankState& state : states_) state.params.resize(model.params.size());
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (!step_.places(p).value) continue;
    for (auto [kind, member] :
         {std::pair(StateKind::kParam, &RankState::Param::value),
          std::pair(StateKind::kExpAvg, &RankState::Param::exp_avg),
          std::pair(StateKind::kExpAvgSq, &RankState::Param::exp_avg_sq),
          std::pair(StateKind::kMomentum, &RankState::Param::momentum_buffer)}) {
      std::optional<size_t> input = InputOf(kind, p);
      if (!input) continue;
      at::Tensor whole;
      if (options.saved) {
        HEDDLE_TRY(whole, options.saved->param_state(kind, p));
      } else if (kind == StateKind::kParam) {
        HEDDLE_TRY(whole, options.params(p));
      }
      for (size_t at = 0; at < states_.size(); ++at) {
        RankState::Param& own = states_[at].params[p];
        own.*member = whole.defined() ? step_.ShardOfInput(*input, whole, at).to(program().device())
                                      : at::zeros_like(own.value);
      }
    }
  }
  return Done{};
}

Status Session::InitBuffers(const Model& model, const SessionOptions& options) {
  for (BoundStep* bound : bound_steps()) {
    for (const auto& [name, input] : bound->buffers()) {
      if (states_[0].buffers.contains(name)) continue;
      at::Tensor whole = MakeBuffer(model, *FindBuffer(model, name));
      if (options.saved && bound->updates(input) && !CountsBatches(name)) {
        HEDDLE_TRY(whole, options.saved->buffer(name));
      }
      for (size_t at = 0; at < states_.size(); ++at) {
        states_[at].buffers[name] = bound->ShardOfInput(input, whole, at).to(program().device());
      }
    }
  }
  return Done{};
}

Status Session::CountTokens(const BatchSource& batches, int64_t number) {
  if (!step_.takes_token_count()) return Done{};
  HEDDLE_TRY(Batch all, batches(number, 0, accumulated_ * step_.rows()));
  int64_t count =
      count_ignored_ ? all.labels.numel() : at::ne(all.labels, kIgnoredLabel).sum().item<int64_t>();
  // Without a label that counts, the loss is 0.
  numbers_.token_count.fill_(std::max<int64_t>(count, 1));
  return Done{};
}

Status Session::RunBoundStep(BoundStep& bound, int64_t runs_before, const Watcher& watch) {
  bool refused = bound.refusal().has_value();
  HEDDLE_RETURN_IF_ERROR(
      bound.Run(runs_before < kWarmUpRuns ? StepReplay::Mode::kWarmUp : StepReplay::Mode::kRecord,
                watch ? watch(bound.program()) : RankProgram::Observer()));
  if (bound.refusal() && !refused)
    notice_(fmt::format("@{} runs as launches, not as a CUDA graph: {}",
                        bound.program().graph().name(), *bound.refusal()));
  return Done{};
}

Status Session::RunBatch(BoundStep& bound, int64_t batch, const Watcher& watch) {
  Clock clock;
  if (placed_step_ != steps_ + 1)
    HEDDLE_RETURN_IF_ERROR(bound.SetBatch(batches_, steps_ + 1, batch * bound.rows()));
  data_seconds_ += Seconds(clock.Elapsed());
  // All graphs of a step are recorded in the same step, in replay order, so that none overwrites
  // live values of another.
  HEDDLE_RETURN_IF_ERROR(RunBoundStep(bound, steps_run_, watch));
  TakeGradients(bound, batch);
  for (size_t at = 0; at < losses_.size(); ++at) {
    at::Tensor loss = bound.loss(at);
    losses_[at] = batch == 0 ? loss : at::add(losses_[at], loss);
  }
  std::vector<StepMetric> before = std::move(metrics_);
  metrics_ = bound.metrics();
  for (size_t m = 0; batch > 0 && m < metrics_.size(); ++m)
    metrics_[m].value = at::add(before[m].value, metrics_[m].value);
  return Done{};
}

void Session::TakeGradients(BoundStep& bound, int64_t batch) {
  for (size_t at = 0; at < states_.size() && batch == 0; ++at) {
    std::vector<RankState::Param>& params = states_[at].params;
    for (size_t p = 0; p < params.size(); ++p) params[p].grad = bound.TakeGradient(at, p);
  }
  // The graphs of later micro-batches have added their gradients to the sum.
  bound.ReleaseGradients();
}

void Session::ReleaseGradients() {
  for (RankState& state : states_) {
    for (RankState::Param& param : state.params) param.grad.reset();
  }
  for (BoundStep* bound : bound_steps()) bound->BindGradients(states_);
}

// Runs while the device computes; otherwise the device would wait for it in the next step.
void Session::PrepareNext() {
  placed_step_ = 0;
  if (program().device().is_cpu()) return;
  ahead_->Fetch(steps_ + 1);
  // Copies wait for the replay that reads the last batch. The next step reports a failure.
  bool placed =
      accumulated_ == 1 && step_.is_recorded() && step_.SetBatch(batches_, steps_ + 1, 0).ok();
  if (placed) placed_step_ = steps_ + 1;
}

void Session::UpdateCopies() {
  if (copied_ || !copies_->params) return;
  copied_ = true;
  copies_->of_rank.resize(states_.size());
  for (size_t at = 0; at < states_.size(); ++at) {
    for (int64_t param : *copies_->params) {
      const at::Tensor& value = states_[at].params[static_cast<size_t>(param)].value;
      // Recorded runs read and write the copy at its first address.
      auto [copy, is_new] = copies_->of_rank[at].try_emplace(param);
      if (is_new) {
        copy->second = value.to(at::kBFloat16);
      } else {
        copy->second.copy_(value);
      }
    }
  }
}

Status Session::Step(double lr, const Watcher& watch) {
  ReleaseGradients();
  data_seconds_ = 0;
  numbers_.SetLr(lr);
  numbers_.step.fill_(steps_ + 1);
  HEDDLE_RETURN_IF_ERROR(CountTokens(batches_, steps_ + 1));
  UpdateCopies();
  // Nothing is known after a failure. With an observer, ATen updates the parameters alone.
  copied_ = false;
  HEDDLE_RETURN_IF_ERROR(RunBatches(watch));
  copied_ = !watch;
  ++steps_;
  ++steps_run_;
  PrepareNext();
  return Done{};
}

Status Session::RunBatches(const Watcher& watch) {
  if (accumulated_ > 1) {
    HEDDLE_RETURN_IF_ERROR(RunBatch(*first_, 0, watch));
    if (more_) more_->BindGradients(states_);
    step_.BindGradients(states_);
    for (int64_t batch = 1; batch + 1 < accumulated_; ++batch)
      HEDDLE_RETURN_IF_ERROR(RunBatch(*more_, batch, watch));
  }
  return RunBatch(step_, accumulated_ - 1, watch);
}

void Session::StartReading() {
  bool on_host = program().device().is_cpu();
  auto start = [&](const at::Tensor& from, at::Tensor& to) {
    if (!from.defined()) return;
    if (!to.defined()) to = at::empty({}, from.options().device(c10::kCPU).pinned_memory(!on_host));
    to.copy_(from, /*non_blocking=*/!on_host);
  };
  start(loss(0), read_loss_);
  start(grad_norm(0), read_norm_);
  if (on_host) return;
  if (!read_) read_.emplace(program().device().type());
  const auto& streams = *c10::impl::getDeviceGuardImpl(program().device().type());
  read_->record(streams.getStream(program().device()));
}

std::pair<double, std::optional<double>> Session::Read() {
  if (read_) read_->synchronize();
  std::optional<double> norm;
  if (read_norm_.defined()) norm = read_norm_.item<double>();
  return {read_loss_.item<double>(), norm};
}

std::vector<at::Tensor> Session::Updated() const {
  std::vector<at::Tensor> updated;
  for (size_t at = 0; at < states_.size(); ++at) {
    for (const RankState::Param& param : states_[at].params) {
      for (const at::Tensor& tensor :
           {param.value, param.exp_avg, param.exp_avg_sq, param.momentum_buffer}) {
        if (tensor.defined()) updated.push_back(tensor);
      }
    }
    for (const UpdatedBuffer& buffer : updated_buffers(at)) updated.push_back(buffer.tensor);
  }
  return updated;
}

void Session::Remember() {
  std::vector<at::Tensor> updated = Updated();
  if (remembered_.empty()) {
    for (const at::Tensor& tensor : updated) remembered_.push_back(at::empty_like(tensor));
  }
  for (size_t i = 0; i < updated.size(); ++i) remembered_[i].copy_(updated[i]);
}

void Session::UndoStep() {
  std::vector<at::Tensor> updated = Updated();
  for (size_t i = 0; i < updated.size(); ++i) updated[i].copy_(remembered_[i]);
  copied_ = false;
}

Result<double> Session::Evaluate(const BatchSource& batches, int64_t number, const Watcher& watch) {
  ReleaseGradients();
  HEDDLE_RETURN_IF_ERROR(CountTokens(batches, number));
  UpdateCopies();
  double loss = 0;
  for (int64_t batch = 0; batch < accumulated_; ++batch) {
    HEDDLE_RETURN_IF_ERROR(forward_->SetBatch(batches, number, batch * forward_->rows()));
    HEDDLE_RETURN_IF_ERROR(RunBoundStep(*forward_, forwards_run_++, watch));
    loss += forward_->loss(0).item<double>();
  }
  return loss;
}

at::Tensor Session::state(StateKind kind, size_t at, size_t param) const {
  const RankState::Param& own = states_[at].params[param];
  switch (kind) {
    case StateKind::kParam: return own.value;
    case StateKind::kExpAvg: return own.exp_avg;
    case StateKind::kExpAvgSq: return own.exp_avg_sq;
    case StateKind::kMomentum: return own.momentum_buffer;
    // A step can return the gradient in the type before a cast.
    case StateKind::kGrad:
      return own.grad.defined() ? own.grad.to(own.value.scalar_type()) : own.grad;
  }
  return {};
}

std::vector<Session::UpdatedBuffer> Session::updated_buffers(size_t at) const {
  std::vector<UpdatedBuffer> updated;
  for (const auto& [name, input] : step_.buffers()) {
    if (step_.updates(input) && !CountsBatches(name))
      updated.push_back({name, input, states_[at].buffers.at(name)});
  }
  return updated;
}

}  // namespace heddle::run
