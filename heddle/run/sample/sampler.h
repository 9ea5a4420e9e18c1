// Sampler: generates text from the current weights of a training run, between two steps. It reads
// the state of the run and changes nothing in it.
#pragma once

#include <string>
#include <vector>

#include "heddle/run/sample/text_coder.h"
#include "heddle/run/train/generate.h"

namespace heddle::run {

struct SamplerOptions {
  // Not empty.
  std::vector<std::string> prompts;
  // Generated for each prompt.
  int64_t tokens = 64;
};

class Sampler {
 public:
  // `model` is the trained one on the CPU, with one sequence per batch. Fails for a prompt that the
  // coder cannot encode; `flag` names it.
  static Result<Sampler> Make(Model model, TextCoder coder, const SamplerOptions& options,
                              std::string_view flag);

  const std::vector<std::string>& prompts() const { return prompts_; }
  // Memory for the weights.
  Bytes memory() const;
  // Returns the likeliest continuation of each prompt: what `heddle generate` prints for a
  // checkpoint of this step. All ranks of the run must be in this process. `trained` is its model.
  Result<std::vector<std::string>> Continue(const GraphRun& run, const Model& trained);

 private:
  Sampler(Model model, TextCoder coder) : model_(std::move(model)), coder_(std::move(coder)) {}

  Model model_;
  TextCoder coder_;
  std::vector<std::string> prompts_;
  std::vector<std::vector<int64_t>> encoded_;
  int64_t tokens_ = 0;
};

}  // namespace heddle::run
