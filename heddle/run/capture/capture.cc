#include "heddle/run/capture/capture.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/aten/error_message.h"
#include "heddle/run/capture/optimizer.h"
#include "heddle/run/capture/recorder.h"
#include "heddle/run/capture/scope.h"

namespace heddle::run {
namespace {

// Runs backward on this thread: the recorder and the scopes are thread-local.
class SingleThreadedAutograd {
 public:
  SingleThreadedAutograd()
      : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~SingleThreadedAutograd() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(before_);
  }
  SingleThreadedAutograd(const SingleThreadedAutograd&) = delete;
  SingleThreadedAutograd& operator=(const SingleThreadedAutograd&) = delete;

 private:
  bool before_;
};

class StepCapture {
 public:
  StepCapture(std::span<const ParamSpec> params, std::span<const StepInput> inputs,
              const CaptureOptions& options)
      : specs_(params),
        input_specs_(inputs),
        options_(options),
        graph_(options.graph_name, Ops()),
        recorder_(graph_) {}

  Result<Module> Run(const ChangingStep& step, const BufferRule& rule) {
    RegisterTracing();
    SingleThreadedAutograd single;
    Recorder::Active active(recorder_);
    try {
      HEDDLE_RETURN_IF_ERROR(Record(step, rule));
    } catch (const CaptureStopped&) {
      return Failure{recorder_.diagnostics()};
    } catch (const std::exception& error) {
      // Autograd wraps exceptions that are thrown inside backward.
      if (!recorder_.diagnostics().empty()) return Failure{recorder_.diagnostics()};
      return Error(Diag::kCaptureOp, "{}", AtenErrorMessage(error));
    }
    Module module;
    module.view = View::kGlobal;
    module.graphs.push_back(std::move(graph_));
    HEDDLE_RETURN_IF_ERROR(Verify(module));
    return module;
  }

 private:
  Status Record(const ChangingStep& step, const BufferRule& rule) {
    if (options_.optimizer) HEDDLE_RETURN_IF_ERROR(CheckOptimizer(*options_.optimizer, specs_));
    AddInputs();
    StepResult result = step(params_, inputs_);
    const at::Tensor& loss = result.loss;
    if (!loss.defined() || loss.numel() != 1)
      return Error(Diag::kCaptureLoss, "the step returns {} as its loss, expected one number",
                   loss.defined() ? Counted(loss.numel(), "element") : "nothing");
    if (!loss.requires_grad())
      return Error(Diag::kCaptureLoss, "the loss of the step depends on no parameter");
    Output output;
    output.role = OutputRole::kLoss;
    output.value = recorder_.ValueOf(loss);
    graph_.AddOutput(output);
    if (options_.forward_only) return Done{};
    if (options_.metrics) AddMetrics(result.metrics);
    HEDDLE_TRY(std::vector<at::Tensor> grads, Backward(loss));
    recorder_.set_phase(Phase::kOptimizer);
    if (options_.accumulate)
      grads = RecordAccumulation(recorder_, graph_, specs_, gradient_sums_, grads);
    if (!options_.optimizer) {
      RecordSeen(result.changes);
      return Done{};
    }
    HEDDLE_RETURN_IF_ERROR(RecordOptimizer(recorder_, graph_, specs_, params_, grads,
                                           optimizer_inputs_, *options_.optimizer));
    RecordChanges(result.changes, rule);
    return Done{};
  }

  void AddMetrics(std::span<const StepMetric> metrics) {
    for (const StepMetric& metric : metrics) {
      Output output;
      output.role = OutputRole::kMetric;
      output.label = metric.name;
      output.value = recorder_.ValueOf(metric.value);
      graph_.AddOutput(output);
    }
  }

  // The sum of `seen` over the previous micro-batches of the step; undefined if a step has one.
  at::Tensor SeenBefore(const BufferChange& change) const {
    std::string name = input_specs_[change.input].name + std::string(kSeenSuffix);
    for (size_t i = 0; i < input_specs_.size(); ++i) {
      if (input_specs_[i].name == name) return inputs_[i];
    }
    return {};
  }

  void RecordSeen(std::span<const BufferChange> changes) {
    at::NoGradGuard no_grad;
    for (const BufferChange& change : changes) {
      at::Tensor before = SeenBefore(change);
      if (before.defined()) RecordUpdate(recorder_, graph_, before, at::add(before, change.seen));
    }
  }

  void RecordChanges(std::span<const BufferChange> changes, const BufferRule& rule) {
    at::NoGradGuard no_grad;
    for (const BufferChange& change : changes) {
      const at::Tensor& buffer = inputs_[change.input];
      at::Tensor before = SeenBefore(change);
      at::Tensor seen = before.defined() ? at::add(before, change.seen) : change.seen;
      RecordUpdate(recorder_, graph_, buffer, rule(buffer, seen));
      if (before.defined()) RecordUpdate(recorder_, graph_, before, at::zeros_like(before));
    }
  }

  void AddInputs() {
    for (size_t i = 0; i < specs_.size(); ++i) {
      Input input;
      input.role = InputRole::kParam;
      input.index = static_cast<int64_t>(i);
      input.label = specs_[i].name;
      input.unit = specs_[i].unit;
      params_.push_back(recorder_.AddInput(std::move(input), options_.param_dtype, specs_[i].shape,
                                           specs_[i].name));
      params_.back().set_requires_grad(specs_[i].trainable);
    }
    if (options_.optimizer) optimizer_inputs_ = AddOptimizerInputs(recorder_, specs_, options_);
    if (options_.accumulate)
      gradient_sums_ = AddGradientSums(recorder_, specs_, options_.param_dtype);
    for (const StepInput& spec : input_specs_) {
      Input input;
      input.role = spec.role;
      input.label = spec.name;
      inputs_.push_back(recorder_.AddInput(std::move(input), spec.dtype, spec.shape, spec.name));
    }
  }

  Result<std::vector<at::Tensor>> Backward(const at::Tensor& loss) {
    recorder_.BeginBackward(loss);
    std::vector<at::Tensor> trainable;
    std::vector<size_t> indices;
    for (size_t i = 0; i < params_.size(); ++i) {
      if (!specs_[i].trainable) continue;
      trainable.push_back(params_[i]);
      indices.push_back(i);
    }
    torch::autograd::variable_list grads = torch::autograd::grad(
        {loss}, trainable, {at::ones_like(loss)}, /*retain_graph=*/false, /*create_graph=*/false,
        /*allow_unused=*/true);
    std::vector<at::Tensor> by_param(params_.size());
    for (size_t i = 0; i < grads.size(); ++i) {
      const ParamSpec& spec = specs_[indices[i]];
      if (!grads[i].defined())
        return Error(Diag::kCaptureNoGrad,
                     "parameter `{}` has no gradient; the loss does not depend on it", spec.name);
      Output output;
      output.role = OutputRole::kGrad;
      output.index = static_cast<int64_t>(indices[i]);
      output.value = recorder_.ValueOf(grads[i]);
      graph_.AddOutput(output);
      by_param[indices[i]] = grads[i];
    }
    return by_param;
  }

  std::span<const ParamSpec> specs_;
  std::span<const StepInput> input_specs_;
  const CaptureOptions& options_;
  Graph graph_;
  Recorder recorder_;
  std::vector<at::Tensor> params_;
  std::vector<at::Tensor> inputs_;
  OptimizerInputs optimizer_inputs_;
  std::vector<at::Tensor> gradient_sums_;
};

}  // namespace

Result<Module> Capture(const StepFunction& step, std::span<const ParamSpec> params,
                       std::span<const StepInput> inputs, const CaptureOptions& options) {
  auto unchanging = [&](std::span<const at::Tensor> p, std::span<const at::Tensor> i) {
    return StepResult{step(p, i)};
  };
  return Capture(unchanging, {}, params, inputs, options);
}

Result<Module> Capture(const ChangingStep& step, const BufferRule& rule,
                       std::span<const ParamSpec> params, std::span<const StepInput> inputs,
                       const CaptureOptions& options) {
  return StepCapture(params, inputs, options).Run(step, rule);
}

}  // namespace heddle::run
