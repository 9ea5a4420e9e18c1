// Options of parallelism. Error messages call a field by its flag.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "heddle/compile/plan/presets/presets.h"
#include "heddle/run/models/config.h"

namespace heddle {

// How attention sees all positions with context parallelism: each rank gathers keys and values,
// ranks exchange positions for heads, or keys and values travel around the ranks. kAuto chooses the
// one of the first two that sends fewer bytes, or kAllGather if the order of positions is stated. A
// ring rounds differently, so it is used on request only.
enum class ContextMethod : uint8_t { kAuto, kAllGather, kUlysses, kRing };
// The order of positions over context-parallel ranks. kAuto is kHeadTail where it has an effect.
enum class ContextOrder : uint8_t { kAuto, kHeadTail, kNone };

// Pipeline parallelism over the outermost mesh axis. Names and defaults are TorchTitan's.
struct PipelineOptions {
  int64_t degree = 1;
  std::string schedule = "1F1B";
  // A file of torch.distributed.pipelining with a schedule; empty: none.
  std::string schedule_csv = {};
  // Micro-batches of a rank's batch, and sequences per micro-batch; 0: not given. Without both, a
  // micro-batch is one sequence.
  int64_t micro_batches = 0;
  int64_t micro_batch_size = 0;
  // Layers per stage; 0: one stage per rank, or two if the schedule needs several.
  int64_t layers_per_stage = 0;
  // The layers that the embedding and the output count as.
  std::optional<int64_t> first_less_layers = {};
  std::optional<int64_t> last_less_layers = {};
  // Micro-batches that share a gather of weights, and a reduction of gradients; 0: all.
  int64_t gather_every = 0;
  int64_t reduce_every = 0;

  // Whether stages are divided by cost, instead of by TorchTitan's rule.
  bool balances() const { return layers_per_stage == 0 && !first_less_layers && !last_less_layers; }
  // The stages for a model with `layers` layers, and a batch of `sequences` per rank. If balances()
  // is true, the first positions are arbitrary.
  Result<compile::PlanStages> Stages(int64_t layers, int64_t sequences) const;

 private:
  Result<int64_t> MicroBatches(int64_t sequences, int64_t in_file) const;
  // By TorchTitan's rule.
  Result<std::vector<int64_t>> FirstPositions(int64_t layers, int64_t stages) const;
};

struct ParallelOptions {
  // Degrees by preset, in the presets' order. One of them may be -1: the remaining factor of the
  // world.
  std::vector<int64_t> degrees = std::vector<int64_t>(compile::Presets().size(), 1);
  // Number of ranks of `shard`, `context` and `tensor` that share experts, and of ranks of `tensor`
  // that share each expert.
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  int64_t expert_times = 0;
  ContextMethod context_method = ContextMethod::kAuto;
  ContextOrder context_order = ContextOrder::kAuto;
  PipelineOptions pipeline = {};
  // World size; 0: the product of the degrees.
  int64_t world = 0;
  // Shards activations between blocks by position over the tensor-parallel ranks.
  bool sequence_parallel = true;
  // Gathers logits instead of sharding the loss by vocabulary.
  bool gather_logits = false;
  // Empty: the names of the presets.
  std::string axis_names = {};
  std::string gradients = "sum";
  // Tensor-parallel ranks reduce gradients in the parameter's type instead of the compute type.
  bool wide_tensor_gradients = false;
  // Data-parallel ranks reduce gradients in bf16 instead of f32.
  bool narrow_gradients = false;
  // A complete plan; empty: none. `plan_text`, if set, is the content of the file.
  std::string plan_file = {};
  std::optional<std::string> plan_text = {};
  // Whether the user set the field of this flag. Such a field must not contradict a plan.
  std::function<bool(std::string_view flag)> given = nullptr;

  bool HasDegrees() const;
  // Fails if the plan comes from standard input, which only one process can read, and only once.
  Status CheckPlanIsFile() const;

  struct Layout {
    Mesh mesh;
    compile::PresetOptions preset;
    // Number of ranks with different parts of the batch.
    int64_t batch_ranks = 1;
    // Degrees by preset, and of expert parallelism. `expert` is 1 for a model without experts.
    std::vector<int64_t> degrees;
    int64_t expert = 1;
    int64_t degree(std::string_view preset) const;
    // Notes about options that have no effect.
    std::vector<std::string> notes;
  };
  // Fails for degrees that do not multiply to the world, invalid names of axes, and heads that the
  // tensor degree does not divide.
  Result<Layout> MakeLayout(const run::ModelConfig& config) const;
  // Sets the reduction of gradients in the plan, for a step that computes with `precision`.
  Status SetGradients(DType precision, compile::Plan& plan) const;
  // Fails if a flag contradicts a plan from a file in its degrees or its reduction of gradients.
  Status CheckPlan(const run::ModelConfig& config, DType precision,
                   const compile::Plan& plan) const;

 private:
  Status ShareExperts(const run::ModelConfig& config, Layout& layout) const;
  void NotePipeline(Layout& layout) const;
  Status CheckExperts(const Layout& layout) const;
  // Sets the method and the order of positions of context parallelism.
  Status ChooseContext(const run::ModelConfig& config, std::span<const int64_t> degrees,
                       compile::PresetOptions& preset, MeshAxis& axis) const;
  Result<std::vector<int64_t>> Degrees() const;
  Result<std::vector<std::string>> AxisNames() const;
};

// Returns the number of ranks of the axes that split the batch; all ranks if no axis has a role.
int64_t BatchRanks(const Mesh& mesh);
// Whether ranks can exchange positions for heads: heads divide evenly among `parts`, the ranks of
// tensor and context parallelism, if key and value heads are repeated where there are fewer.
bool MayExchangeHeads(const run::ModelConfig& config, int64_t parts);
// Fails unless this degree of tensor parallelism divides the heads.
Status CheckHeads(const run::ModelConfig& config, int64_t tensor);

}  // namespace heddle
