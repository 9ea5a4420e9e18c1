// A decoder as one of several tensor-parallel ranks runs it, and one of several that share experts, with its collectives written out.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "heddle/run/eager/meeting.h"
#include "heddle/run/models/model.h"

namespace heddle::run {

// A rank's place in a group.
struct Seat {
  Meeting* meeting = nullptr;
  int64_t member = 0;
};

// The dimension of a weight that is split over tensor-parallel ranks; none for norms, for routers and for what comes out whole of
// latents. Where each of these ranks routes tokens of its own, none for all of the layer.
std::optional<int64_t> TensorSplitDim(std::string_view param, bool own_tokens);
// Whether it is a stack of experts.
bool IsExpertStack(std::string_view param);

struct SliceOptions {
  Seat tensor;
  // None without expert parallelism.
  std::optional<Seat> experts = std::nullopt;
  // Tensor-parallel ranks route tokens of their own, and have whole experts. Otherwise they split each.
  bool own_tokens = false;
  bool sequence_parallel = true;
  bool split_loss = true;
};

class DecoderSlice {
 public:
  DecoderSlice(const Model& model, const SliceOptions& options)
      : model_(model), options_(options), seat_(options.tensor) {}

  // The summed cross entropy: with a split loss, of the labels whose classes this rank has. What changes buffers is what this rank
  // saw.
  StepResult LossSum(std::span<const at::Tensor> params, std::span<const at::Tensor> inputs);

 private:
  at::Tensor Embed(const ModelWeights& weights, const at::Tensor& tokens);
  at::Tensor Mixture(const ModelWeights& weights, const at::Tensor& x, int64_t layer);
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& labels);
  // From the residual stream to all positions, and back, summed.
  at::Tensor Enter(const at::Tensor& x);
  at::Tensor Leave(const at::Tensor& partial);
  // From the residual stream to tokens of this rank's own, and back.
  at::Tensor OwnTokens(const at::Tensor& x);
  at::Tensor AllTokens(const at::Tensor& own, bool whole_sequences);
  // Whether the gradient of a weight that is whole on every rank is summed over them.
  bool SumsGradient(std::string_view param) const;

  const Model& model_;
  SliceOptions options_;
  Seat seat_;
};

}  // namespace heddle::run
