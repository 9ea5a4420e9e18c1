// Session: a step that was compiled, the state of the ranks of this process, and steps on it.
//
// What stands where among the inputs and outputs of the graph is found once. A step makes the batch of its ranks, sets the learning
// rate and the number of the step, and runs the graph, which updates the state in place.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "heddle/models/init.h"
#include "heddle/models/model.h"
#include "heddle/runtime/world.h"
#include "heddle/train/training_run.h"

namespace heddle {

// A whole parameter, by its number in registration order. Asked for one after the other, so that one at a time is in memory.
using ParamSource = std::function<Result<at::Tensor>(size_t param)>;
// Rows of the batch of a step, counted over all ranks.
using BatchSource = std::function<Batch(int64_t step, int64_t first_row, int64_t rows)>;

// The same on every mesh, from a seed.
ParamSource InitialParams(const Model& model, uint64_t seed);
BatchSource SyntheticBatches(const Model& model, uint64_t seed);

struct SessionOptions {
  WorldOptions world;
  ParamSource params;
  BatchSource batches;
};

class Session final : public TrainingRun {
 public:
  // A local graph of the model's step with its optimizer. Moments are zeros.
  static Result<Session> Make(const Model& model, const Module& local,
                              const SessionOptions& options);

  Status Step(double lr) override { return Step(lr, {}); }
  // The observer sees every node (World::Run).
  Status Step(double lr, const World::Observer& observer);

  int64_t steps() const override { return steps_; }
  std::span<const int64_t> ranks() const override { return world_.ranks(); }
  at::Tensor loss(size_t at) const override { return OutputAt(at, loss_); }
  at::Tensor grad_norm(size_t at) const override { return OutputAt(at, grad_norm_); }
  at::Tensor held(Held held, size_t at, size_t param) const override;

  const World& world() const { return world_; }

 private:
  // A position among the inputs or outputs of the graph.
  using Place = std::optional<size_t>;
  struct ParamPlaces {
    Place param;
    Place exp_avg;
    Place exp_avg_sq;
    Place grad;
  };

  explicit Session(World world) : world_(std::move(world)) {}
  void FindInputs(const Model& model);
  void FindOutputs();
  Status InitState(const Model& model, const SessionOptions& options);
  // What a rank holds of input `i` of the graph.
  at::Tensor Shard(size_t i, const at::Tensor& whole, size_t at) const;
  void SetBatch(int64_t step);
  at::Tensor OutputAt(size_t at, Place place) const;

  World world_;
  BatchSource batches_;
  int64_t steps_ = 0;
  // By parameter.
  std::vector<ParamPlaces> params_;
  Place tokens_;
  Place labels_;
  Place lr_;
  Place step_;
  Place loss_;
  Place grad_norm_;
  // Updates that no op does in place: of the inputs that come second, by the outputs that come first.
  std::vector<std::pair<size_t, size_t>> updates_;
  // By rank of this process. Empty outputs before the first step.
  std::vector<Tensors> inputs_;
  std::vector<Tensors> outputs_;
};

}  // namespace heddle
