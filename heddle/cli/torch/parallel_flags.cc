#include "heddle/cli/torch/parallel_flags.h"

namespace heddle {

void ParallelFlags::Declare(Flags& flags) {
  given = [set = flags.given()](std::string_view flag) { return set->Has(flag); };
  flags.Section("Parallelism");
  for (size_t i = 0; i < compile::Presets().size(); ++i) {
    const compile::Preset& preset = *compile::Presets()[i];
    flags.Option(fmt::format("--parallelism.{}", preset.degree_flag), degrees[i],
                 fmt::format("{}; -1: the rest of --world_size", preset.help));
  }
  flags.Option("--parallelism.expert_parallel_degree", expert,
               "ranks that share the experts of a layer, among the sharding ranks and, unless "
               "those share each expert, the tensor-parallel ranks",
               {.least = 1});
  flags.Option("--parallelism.expert_tensor_parallel_degree", expert_tensor,
               "tensor-parallel ranks that share each expert: 1, or all of them", {.least = 1});
  flags.Option("--parallelism.expert_rows_times", expert_times,
               "limit of the rows a rank receives for its experts, as a multiple of its own; more "
               "fails the run (0: no limit)",
               {.least = 0});
  flags.Option("--parallelism.enable_sequence_parallel", sequence_parallel,
               "true or false: shard activations between blocks by position over the "
               "tensor-parallel ranks");
  flags.Option("--parallelism.enable_loss_parallel", loss_parallel,
               "true or false: shard the loss by vocabulary over the tensor-parallel ranks instead "
               "of gathering logits");
  flags.Switch("--parallelism.disable_loss_parallel", gather_logits,
               "same as --parallelism.enable_loss_parallel=false");
  flags.Option("--plan,--parallelism.plan=FILE", plan_file,
               "plan to use instead of degrees; `heddle search` and `heddle plan` write plans");
  flags.Path("--parallelism.plan");
  std::string names;
  for (const compile::Preset* preset : compile::Presets())
    names += fmt::format("{}{}", names.empty() ? "" : ",", preset->axis());
  flags.Option("--parallelism.axis_names", axis_names,
               fmt::format("names of the mesh axes (default: {})", names));
  flags.Option("--parallelism.gradients", gradients,
               "reduction of gradients over ranks: sum, average, or a number that divides the sum");
  flags.Option("--parallelism.tensor_gradients", tensor_gradients,
               "type in which gradients are reduced over the tensor-parallel ranks: narrow (as "
               "computed, like eager) or wide (the parameter's)");
  flags.Option(
      "--training.mixed_precision_reduce", reduce_type,
      "type in which gradients are reduced over the data-parallel ranks: f32, or bf16 with "
      "--precision=bf16");
  flags.Option("--world_size", world, "number of ranks (0: the product of the degrees)",
               {.least = 0});
}

Result<ParallelOptions> ParallelFlags::WithPlan(const Streams& streams) const {
  ParallelOptions options = *this;
  if (plan_file == "-") {
    HEDDLE_TRY(options.plan_text, ReadInput(plan_file, streams));
  }
  return options;
}

}  // namespace heddle
