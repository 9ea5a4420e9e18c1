#include "heddle/run/sample/sampler.h"

#include <algorithm>
#include <map>

#include <ATen/ops/empty.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/train/resume.h"

namespace heddle::run {
namespace {

using Pieces = std::vector<SnapshotPiece>;

// The pieces of the tensors of a run, by name.
std::map<std::string, Pieces> CurrentTensors(const GraphRun& run, const Model& model) {
  std::map<std::string, Pieces> tensors;
  for (SnapshotPiece& piece : SnapshotOf(run, model, "").pieces) {
    std::string name = piece.tensor.name;
    tensors[name].push_back(std::move(piece));
  }
  return tensors;
}

at::Tensor Whole(const Pieces& pieces) {
  at::TensorOptions type = at::TensorOptions().dtype(ToScalarType(pieces[0].tensor.dtype));
  at::Tensor whole = at::empty(pieces[0].tensor.shape, type);
  for (const SnapshotPiece& piece : pieces) {
    at::Tensor part = at::empty(piece.slice.shape, type);
    if (part.numel() == 0) continue;
    piece.copy(part.mutable_data_ptr());
    at::Tensor to = whole;
    for (size_t d = 0; d < piece.slice.shape.size(); ++d)
      to = to.narrow(static_cast<int64_t>(d), piece.slice.offset[d], piece.slice.shape[d]);
    to.copy_(part);
  }
  return whole;
}

}  // namespace

Result<Sampler> Sampler::Make(Model model, TextCoder coder, const SamplerOptions& options,
                              std::string_view flag) {
  Sampler sampler(std::move(model), std::move(coder));
  sampler.prompts_ = options.prompts;
  sampler.tokens_ = options.tokens;
  for (const std::string& prompt : options.prompts) {
    HEDDLE_TRY(std::vector<int64_t> tokens, sampler.coder_.Encode(flag, prompt));
    sampler.encoded_.push_back(std::move(tokens));
  }
  return sampler;
}

// A parameter is cast when it is read, so only one has both types.
Bytes Sampler::memory() const {
  int64_t all = 0;
  int64_t largest = 0;
  for (const ParamSpec& param : model_.params) {
    all += CountOf(param.shape);
    largest = std::max(largest, CountOf(param.shape));
  }
  return Bytes{all * ItemSize(model_.numerics.compute) + largest * ItemSize(DType::kF32)};
}

Result<std::vector<std::string>> Sampler::Continue(const GraphRun& run, const Model& trained) {
  std::map<std::string, Pieces> tensors = CurrentTensors(run, trained);
  // Biases of experts, which are loaded from files or updated by steps.
  model_.state = trained.state;
  for (const StepInput& input : model_.inputs) {
    auto found = tensors.find(input.name);
    if (IsState(input) && found != tensors.end()) model_.state[input.name] = Whole(found->second);
  }
  // Assembled and cast once for all prompts.
  std::vector<at::Tensor> params;
  for (const ParamSpec& param : model_.params) {
    auto found = tensors.find(param.name);
    HEDDLE_CHECK(found != tensors.end(), "a run lacks " + param.name);
    params.push_back(Whole(found->second).to(ToScalarType(model_.numerics.compute)));
  }
  GenerateOptions options{.tokens = tokens_, .end = coder_.end()};
  std::vector<std::string> texts;
  for (const std::vector<int64_t>& prompt : encoded_) {
    HEDDLE_TRY(
        std::vector<int64_t> made,
        Generate(
            model_, [&](size_t p) -> Result<at::Tensor> { return params[p]; }, prompt, options));
    HEDDLE_TRY(std::string text, coder_.Decode(prompt, made));
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace heddle::run
