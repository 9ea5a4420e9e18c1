// ModelCosts: times and memory of one micro-batch of a model on one rank, by position
// (core/analysis/layers.h). Pipelines are predicted from them. Because layers repeat, two small
// models are enough.
#pragma once

#include <vector>

#include "heddle/price/pipeline/step_costs.h"
#include "heddle/search/evaluate/evaluate.h"

namespace heddle::search {

// Work and memory of a rank that all micro-batches share.
struct SharedCosts {
  Nanos optimizer;
  // Parameters and optimizer state.
  Bytes state;
  // Weights as kernels read them: gathered and cast.
  Bytes weights;
  // Sums of gradients, before ranks that split the batch add them.
  Bytes gradients;

  SharedCosts& operator+=(const SharedCosts& other);
};

struct ModelCosts {
  // `cost.activations` is the memory that forward leaves for backward at a layer.
  std::vector<price::PositionCost> positions;
  Nanos every_stage;
  // By position.
  std::vector<SharedCosts> shared;
  // Memory that forward leaves after the layers. It is freed with the gradient of the last stage's
  // input.
  Bytes output;
  // Memory of values of a layer that backward computes again. If its two parts run separately, the
  // first leaves them for the second.
  Bytes recomputed;
  // Memory that backward of a layer needs for a moment.
  Bytes workspace;
};

// The costs of a model with few layers.
struct SmallModel {
  price::StepCosts step;
  SharedCosts shared;
  Bytes kept;
  Bytes workspace;
};
// `step` is the step of one micro-batch, whose passes freed gathered weights after forward.
Result<SmallModel> MeasureSmallModel(const Evaluation& step, const price::CostModel& model);

// The costs of a model with more layers. `larger` has one layer more than `smaller`. Its second to
// last layer is repeated.
ModelCosts ExtendCosts(const SmallModel& smaller, const SmallModel& larger, int64_t layers);

}  // namespace heddle::search
