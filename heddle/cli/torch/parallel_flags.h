// The flags that say how a step is spread over ranks. TorchTitan's spelling where it has one.
#pragma once

#include <memory>

#include "heddle/cli/flags.h"
#include "heddle/models/config.h"
#include "heddle/plan/presets/presets.h"

namespace heddle {

struct ParallelFlags {
  // By preset, in their order. One of them may be -1: what the others leave of the world.
  std::vector<int64_t> degrees = std::vector<int64_t>(Presets().size(), 1);
  // Ranks that share experts, among those of `shard` and `tensor`; and those of `tensor` that share each expert.
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  int64_t expert_times = 0;
  // 0: the product of the degrees.
  int64_t world = 0;
  std::string sequence_parallel = "true";
  std::string loss_parallel = "true";
  bool gather_logits = false;
  // Empty: as the presets call them.
  std::string axis_names;
  std::string gradients = "sum";
  std::string tensor_gradients = "narrow";
  std::string reduce_type = "f32";
  // A file that says all of it; empty: none.
  std::string plan_file;
  std::shared_ptr<const GivenFlags> given = {};

  void Declare(Flags& flags);
  bool HasDegrees() const;
  // Fails for a plan from standard input, which is read once, and by one process.
  Status CheckPlanIsFile() const;

  struct Layout {
    Mesh mesh;
    PresetOptions preset;
    // Ranks that have different parts of the batch.
    int64_t batch_ranks = 1;
    // By preset, and of expert parallelism: 1 for a model without experts.
    std::vector<int64_t> degrees;
    int64_t expert = 1;
    int64_t degree(std::string_view preset) const;
    // What was asked for and has no effect.
    std::vector<std::string> notes;
  };
  // Fails for degrees that do not multiply to the world, names that are no names of axes, and heads that do not divide.
  Result<Layout> MakeLayout(const ModelConfig& config) const;
  // How gradients are reduced, where the step computes with `precision`.
  Status SetGradients(std::string_view precision, Plan& plan) const;
  // That no flag contradicts a plan from a file: degrees, and how gradients are reduced.
  Status CheckPlan(const ModelConfig& config, std::string_view precision, const Plan& plan) const;
  bool reduces_narrow() const { return reduce_type == "bf16"; }

 private:
  Status ShareExperts(const ModelConfig& config, Layout& layout) const;
  Status CheckExperts(const Layout& layout) const;
  Result<std::vector<int64_t>> Degrees() const;
  Result<std::vector<std::string>> AxisNames() const;
};

// That tensor parallelism of this degree divides the heads.
Status CheckHeads(const ModelConfig& config, int64_t tensor);

}  // namespace heddle
