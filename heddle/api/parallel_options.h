// How a step is spread over ranks. Messages name the fields by the flags that set them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "heddle/compile/plan/presets/presets.h"
#include "heddle/run/models/config.h"

namespace heddle {

struct ParallelOptions {
  // By preset, in their order. One of them may be -1: what the others leave of the world.
  std::vector<int64_t> degrees = std::vector<int64_t>(compile::Presets().size(), 1);
  // Ranks of `shard` and `tensor` that share experts; ranks of `tensor` that share each expert.
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  int64_t expert_times = 0;
  // 0: the product of the degrees.
  int64_t world = 0;
  // Activations between blocks are sharded by position over the tensor-parallel ranks.
  bool sequence_parallel = true;
  // Logits are gathered instead of sharding the loss by vocabulary.
  bool gather_logits = false;
  // Empty: as the presets call them.
  std::string axis_names = {};
  std::string gradients = "sum";
  // Tensor-parallel ranks reduce gradients in the parameter's type, not in the computed one.
  bool wide_tensor_gradients = false;
  // Data-parallel ranks reduce gradients in bf16 instead of f32.
  bool narrow_gradients = false;
  // A plan that states all of it; empty: none. `plan_text`, if set, is the content of the file.
  std::string plan_file = {};
  std::optional<std::string> plan_text = {};
  // Whether the user set a field, by its flag. Such a field must not contradict a plan.
  std::function<bool(std::string_view flag)> given = nullptr;

  bool HasDegrees() const;
  // Fails for a plan from standard input, which is read once, and by one process.
  Status CheckPlanIsFile() const;

  struct Layout {
    Mesh mesh;
    compile::PresetOptions preset;
    // Ranks that have different parts of the batch.
    int64_t batch_ranks = 1;
    // By preset, and of expert parallelism: 1 for a model without experts.
    std::vector<int64_t> degrees;
    int64_t expert = 1;
    int64_t degree(std::string_view preset) const;
    // Options that have no effect.
    std::vector<std::string> notes;
  };
  // Fails for degrees that do not multiply to the world, invalid names of axes, and heads that do
  // not divide.
  Result<Layout> MakeLayout(const run::ModelConfig& config) const;
  // How gradients are reduced, where the step computes with `precision`.
  Status SetGradients(DType precision, compile::Plan& plan) const;
  // That no flag contradicts a plan from a file: degrees, and how gradients are reduced.
  Status CheckPlan(const run::ModelConfig& config, DType precision,
                   const compile::Plan& plan) const;

 private:
  Status ShareExperts(const run::ModelConfig& config, Layout& layout) const;
  Status CheckExperts(const Layout& layout) const;
  Result<std::vector<int64_t>> Degrees() const;
  Result<std::vector<std::string>> AxisNames() const;
};

// Ranks of the axes that split the batch; all ranks of a mesh whose axes have no roles.
int64_t BatchRanks(const Mesh& mesh);
// That tensor parallelism of this degree divides the heads.
Status CheckHeads(const run::ModelConfig& config, int64_t tensor);

}  // namespace heddle
