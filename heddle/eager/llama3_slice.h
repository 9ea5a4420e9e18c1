// Llama 3 as one of several tensor-parallel ranks runs it, with its collectives written out.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "heddle/eager/meeting.h"
#include "heddle/models/model.h"

namespace heddle {

// The dimension of a weight that is split over tensor-parallel ranks; none for norms, which are whole on each.
std::optional<int64_t> Llama3SplitDim(std::string_view param);

class Llama3Slice {
 public:
  Llama3Slice(const Model& model, Meeting& meeting, int64_t slice, bool sequence_parallel,
              bool split_loss)
      : model_(model),
        meeting_(meeting),
        slice_(slice),
        sequence_parallel_(sequence_parallel),
        split_loss_(split_loss) {}

  // The summed cross entropy: with a split loss, of the labels whose classes this rank has.
  at::Tensor LossSum(std::span<const at::Tensor> params, std::span<const at::Tensor> inputs);

 private:
  at::Tensor Embed(const Weights& weights, const at::Tensor& tokens);
  at::Tensor Attention(const Weights& weights, const at::Tensor& x);
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& labels);
  // From the residual stream to all positions, and back, summed.
  at::Tensor Enter(const at::Tensor& x);
  at::Tensor Leave(const at::Tensor& partial);

  const Model& model_;
  Meeting& meeting_;
  int64_t slice_;
  bool sequence_parallel_;
  bool split_loss_;
};

}  // namespace heddle
