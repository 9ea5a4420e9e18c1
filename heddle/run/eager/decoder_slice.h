// A decoder as one rank of tensor, context and expert parallelism runs it, with explicit
// collectives.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "heddle/run/eager/context_attention.h"
#include "heddle/run/models/model.h"

namespace heddle::run {

// Returns the dimension of a weight that is split over tensor-parallel ranks. Returns nullopt for
// norms, routers, and projections to latents, which are replicated. With `own_tokens`, each rank
// routes its own tokens, and the weights of a mixture are not split either.
std::optional<int64_t> TensorSplitDim(std::string_view param, bool own_tokens);
// Whether the parameter is a stack of experts.
bool IsExpertStack(std::string_view param);

struct SliceOptions {
  GroupRank tensor;
  // Unset without expert parallelism.
  std::optional<GroupRank> experts = std::nullopt;
  // Unset without context parallelism.
  std::optional<GroupRank> context = std::nullopt;
  ContextSplit context_split = {};
  // Tensor-parallel ranks route their own tokens and have whole experts. Otherwise they split each
  // expert.
  bool own_tokens = false;
  bool sequence_parallel = true;
  bool split_loss = true;
};

class DecoderSlice {
 public:
  DecoderSlice(const Model& model, const SliceOptions& options)
      : model_(model), options_(options), rank_(options.tensor) {}

  // Returns the summed cross entropy; with a split loss, only of the labels whose classes are on
  // this rank. Buffer changes are those of this rank's tokens.
  StepResult LossSum(std::span<const at::Tensor> params, std::span<const at::Tensor> inputs);

 private:
  at::Tensor Embed(const ModelWeights& weights, const at::Tensor& tokens);
  at::Tensor Mixture(const ModelWeights& weights, const at::Tensor& x, int64_t layer);
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& labels);
  // Gathers the residual stream to all positions, and scatters the summed result back.
  at::Tensor Enter(const at::Tensor& x);
  at::Tensor Leave(const at::Tensor& partial);
  // Selects this rank's own tokens from the residual stream, and gathers the results.
  at::Tensor OwnTokens(const at::Tensor& x);
  at::Tensor AllTokens(const at::Tensor& own, bool whole_sequences);
  // Whether the gradient of a replicated weight is summed over the ranks.
  bool SumsGradient(std::string_view param) const;

  const Model& model_;
  SliceOptions options_;
  GroupRank rank_;
};

}  // namespace heddle::run
