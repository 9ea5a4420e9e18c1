#include "heddle/run/verify/eager_run.h"

#include <numeric>

#include "heddle/run/aten/error_message.h"
#include "heddle/run/eager/data_parallel.h"
#include "heddle/run/eager/expert_parallel.h"
#include "heddle/run/models/family.h"

namespace heddle::run {
namespace {

// `Eager` is one of the classes of heddle/run/eager, which have the same functions.
template <typename Eager>
class EagerRun final : public TrainingRun {
 public:
  EagerRun(const Model& model, Eager eager, const EagerOptions& options)
      : model_(model),
        eager_(std::move(eager)),
        batches_(options.batches),
        device_(options.device),
        micro_batches_(options.batches_of_step * options.micro_batches),
        coordinates_(options.coordinates) {
    // The pipeline axis is the slowest.
    int64_t pipeline = coordinates_.empty() ? 1 : *std::ranges::max_element(coordinates_) + 1;
    ranks_.resize(static_cast<size_t>(pipeline * eager_.ranks()));
    std::iota(ranks_.begin(), ranks_.end(), 0);
    inputs_.resize(model.inputs.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const StepInput& input = model.inputs[i];
      if (input.role == InputRole::kBuffer) inputs_[i] = MakeBuffer(model, input).to(device_);
      if (input.name == kDocumentPositions) documents_ = i;
    }
  }

  Status Step(double lr) override {
    HEDDLE_TRY(Batch batch, batches_(steps_ + 1, 0, micro_batches_ * model_.batch.batch));
    inputs_[inputs_.size() - 2] = batch.tokens.to(device_);
    inputs_[inputs_.size() - 1] = batch.labels.to(device_);
    if (documents_) inputs_[*documents_] = DocumentPositions(batch.ends).to(device_);
    try {
      last_ = eager_.Step(inputs_, lr, steps_ + 1);
    } catch (const std::exception& error) {
      return Error(Diag::kRunFault, "eager training failed: {}", AtenErrorMessage(error));
    }
    for (const auto& [input, buffer] : last_.buffers) inputs_[input] = buffer;
    ++steps_;
    return Done{};
  }
  int64_t steps() const override { return steps_; }
  std::span<const int64_t> ranks() const override { return ranks_; }
  at::Tensor loss(size_t) const override { return last_.loss; }
  at::Tensor grad_norm(size_t) const override { return last_.grad_norm; }
  at::Tensor state(StateKind kind, size_t at, size_t param) const override {
    // All coordinates train the same model.
    int64_t rank = ranks_[at] % eager_.ranks();
    if (!coordinates_.empty() && coordinates_[param] != ranks_[at] / eager_.ranks()) return {};
    switch (kind) {
      case StateKind::kParam: return eager_.param(rank, param);
      case StateKind::kExpAvg: return eager_.exp_avg(rank, param);
      case StateKind::kExpAvgSq: return eager_.exp_avg_sq(rank, param);
      case StateKind::kMomentum: return eager_.momentum_buffer(rank, param);
      case StateKind::kGrad: return eager_.grad(rank, param);
    }
    return {};
  }

 private:
  const Model& model_;
  Eager eager_;
  BatchSource batches_;
  c10::Device device_;
  int64_t micro_batches_;
  std::vector<int64_t> coordinates_;
  int64_t steps_ = 0;
  std::vector<int64_t> ranks_;
  std::vector<at::Tensor> inputs_;
  // Index of kDocumentPositions among the inputs.
  std::optional<size_t> documents_;
  EagerStep last_;
};

}  // namespace

Status CheckEagerExists(const Model& model, const EagerOptions& options) {
  constexpr std::string_view kInstead =
      "use --against=none to train the graph only, or --against=PIPELINE to compare two pipelines";
  auto refuse = [&](std::string_view kind, std::string_view name, double weight) -> Status {
    if (weight <= 0) return Done{};
    return Error(Diag::kBadChoice,
                 "eager {} parallelism does not support --training.{}, which is {}; {}", kind, name,
                 weight, kInstead);
  };
  if (options.tensor > 1) {
    HEDDLE_RETURN_IF_ERROR(refuse("tensor", "z_loss", model.numerics.z_loss));
    HEDDLE_RETURN_IF_ERROR(refuse("tensor", "aux_loss", model.numerics.aux_loss));
  }
  if (options.context > 1)
    HEDDLE_RETURN_IF_ERROR(refuse("context", "aux_loss", model.numerics.aux_loss));
  const Family& family = *model.config.family;
  if (options.tensor == 1 || (family.attention != nullptr && family.heads_apart)) return Done{};
  return Error(Diag::kBadChoice,
               "{} has no eager tensor parallelism, but --parallelism.tensor_parallel_degree is "
               "{}; {}",
               family.name, options.tensor, kInstead);
}

Result<std::unique_ptr<TrainingRun>> MakeEagerRun(const Model& model, const EagerOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckEagerExists(model, options));
  std::vector<at::Tensor> params;
  for (size_t i = 0; i < model.params.size(); ++i) {
    HEDDLE_TRY(at::Tensor whole, options.params(i));
    params.push_back(whole.to(options.device));
  }
  DataParallelOptions data{options.replicate, options.shard, options.reducer, options.optimizer};
  data.threads = options.threads;
  data.batches = options.batches_of_step;
  data.micro_batches = options.micro_batches;
  data.reduce_every = options.reduce_every;
  data.coordinates = options.coordinates;
  if (options.narrow_grads) data.reduce_type = at::kBFloat16;
  TensorParallelOptions tensor{data,
                               options.tensor,
                               options.context,
                               options.context_split,
                               options.sequence_parallel,
                               options.split_loss};
  tensor.data.shard *= options.context;
  if (options.expert > 1 || options.tensor > 1 || options.context > 1) {
    // Without expert parallelism, tensor-parallel ranks split each expert.
    int64_t expert_tensor = options.expert > 1 ? options.expert_tensor : options.tensor;
    return std::unique_ptr<TrainingRun>(std::make_unique<EagerRun<EagerExpertParallel>>(
        model, EagerExpertParallel(model, params, {tensor, options.expert, expert_tensor}),
        options));
  }
  return std::unique_ptr<TrainingRun>(std::make_unique<EagerRun<EagerDataParallel>>(
      model, EagerDataParallel(model, params, data), options));
}

}  // namespace heddle::run
