// The memory of a training job, and its description.
#include <fmt/ranges.h>

#include "heddle/api/training_job.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/kernel/kernel_memory.h"
#include "heddle/price/cost/step_summary.h"
#include "heddle/run/models/family.h"
#include "heddle/run/train/device.h"
#include "heddle/run/train/resume.h"

namespace heddle {
namespace {

// Memory that the ranks of one process need together. They share results that are equal on all of
// them, so only bounds are known: each rank has its own state, and at least one of each coordinate
// has everything else.
struct Need {
  Bytes least;
  Bytes most;
  Bytes state;
};

// `memory` has an entry for each coordinate, or one for all ranks. A process with one rank may run
// any of them.
Need NeedOf(const std::vector<run::RunMemory>& memory, int64_t ranks_here, Bytes buffer) {
  auto coordinates = static_cast<int64_t>(memory.size());
  int64_t ranks = std::max<int64_t>(1, ranks_here / coordinates);
  Need all{buffer, buffer, buffer};
  Need largest = all;
  for (const run::RunMemory& one : memory) {
    Need need{one.state * (ranks - 1) + one.peak, one.peak * ranks, one.state * ranks};
    all = {all.least + need.least, all.most + need.most, all.state + need.state};
    if (need.most + buffer > largest.most)
      largest = {need.least + buffer, need.most + buffer, need.state + buffer};
  }
  return ranks_here < coordinates ? largest : all;
}

// The coordinate with the highest peak.
const run::RunMemory& Highest(const std::vector<run::RunMemory>& memory) {
  return *std::ranges::max_element(memory, {}, &run::RunMemory::peak);
}

std::string FormatNeed(const Need& need) {
  if (need.least == need.most) return Format(need.most);
  return fmt::format("{} to {}", Format(need.least), Format(need.most));
}

}  // namespace

// Ranks share the memory of a machine, but each process of a job has its own GPU.
int64_t TrainingJob::RanksHere() const { return processes_ && !device_.is_cpu() ? 1 : ranks(); }

// A process that only launches ranks does not use their GPUs.
run::DeviceMemory TrainingJob::OwnMemory() const {
  if (processes_ && !local_rank_ && !device_.is_cpu()) return {};
  return run::ReadMemory(device_);
}

std::vector<run::RunMemory> TrainingJob::Memory() const {
  bool remembers = trainer_.not_finite == run::BadLossPolicy::kSkip ||
                   trainer_.spike == run::BadLossPolicy::kSkip;
  if (kernels_ == nullptr)
    return run::MemoryOfRun(graphs().modules(), remembers, /*with_host=*/device_.is_cpu());
  // The graph of the step decides which parameters have copies.
  std::optional<std::set<int64_t>> copies;
  return run::MemoryOfRun(graphs().modules(), remembers, /*with_host=*/false,
                          [&](const Graph& graph) -> run::GraphPeak {
                            bool is_step = std::ranges::any_of(
                                graphs().step.graphs, [&](const Graph& g) { return &g == &graph; });
                            KernelMemory memory =
                                MemoryWithKernels(graph, is_step ? std::nullopt : copies);
                            if (is_step) copies = memory.copied;
                            return {memory.peak, std::move(memory.largest), memory.copies};
                          });
}

// One rank saves each tensor, so all ranks together copy it once. The buffer is in host memory.
Bytes TrainingJob::CheckpointBuffer() const {
  if (options_.loop.folder.empty() || !device_.is_cpu()) return {};
  int64_t bytes = 0;
  for (const run::TensorInfo& tensor : run::TensorsToResume(model(), graphs().step))
    bytes += run::BytesOf(tensor.dtype, tensor.shape);
  return Bytes{bytes};
}

// Text is generated on the CPU.
Bytes TrainingJob::SampleMemory() const {
  return sampler_ && device_.is_cpu() ? sampler_->memory() : Bytes{};
}

Bytes TrainingJob::StateHere() const {
  std::vector<run::RunMemory> memory = Memory();
  std::optional<AxisId> axis = ProgramAxis(graphs().step);
  if (peers_ != nullptr)
    return memory[axis ? graphs().step.mesh.Coordinate(peers_->rank(), *axis) : 0].state;
  return NeedOf(memory, ranks(), Bytes{}).state;
}

std::string TrainingJob::Describe() const {
  const run::Model& model = this->model();
  std::string out;
  auto line = [&](std::string_view what, const std::string& text) {
    out += fmt::format("{:<12} {}\n", what, text);
  };
  line("model", fmt::format("{} {}, {} parameters{}, {}", model.config.family->name,
                            model.config.flavor, WithCommas(model.parameter_count()),
                            model.config.lora.rank == 0
                                ? ""
                                : fmt::format(" ({} trained)", WithCommas(model.trained_count())),
                            Name(options_.model.precision)));
  line("mesh", fmt::format("[{}], {} {}", Format(graphs().step.mesh), Counted(ranks(), "rank"),
                           processes_ ? "in one process each" : "in this process"));
  int64_t rows = planned().sequences();
  int64_t parts = rows / model.batch.batch;
  line("batch", fmt::format("{} x {} tokens{}, {} in all", rows, model.batch.seq_len,
                            parts > 1 ? fmt::format(" in {} parts", parts) : "",
                            Counted(options_.optimization.steps, "step")));
  std::string_view what = "data";
  std::string data = dataset_->Describe(options_.optimization.steps);
  for (std::string_view text : Split(data, '\n')) line(std::exchange(what, ""), std::string(text));
  run::DeviceMemory memory = OwnMemory();
  std::vector<run::RunMemory> run = Memory();
  Bytes buffer = CheckpointBuffer();
  Bytes samples = SampleMemory();
  std::string_view of_each = run.size() > 1 ? " of each coordinate" : "";
  std::vector<std::string> peaks;
  for (const run::RunMemory& coordinate : run) peaks.push_back(Format(coordinate.peak));
  line("memory",
       fmt::format(
           "{} per rank{}{}{}; {} needed here{}", fmt::join(peaks, ", "), of_each,
           buffer.value > 0 ? fmt::format(", {} to save checkpoints", Format(buffer)) : "",
           samples.value > 0 ? fmt::format(", {} to generate text", Format(samples)) : "",
           FormatNeed(NeedOf(run, RanksHere(), buffer + samples)),
           memory.available ? fmt::format(", {} available", Format(*memory.available)) : ""));
  std::vector<std::string> work;
  for (const Graph& graph : graphs().step.graphs)
    work.push_back(Format(price::TotalFlops(graphs().step, graph) * micro_batches()));
  line("work", fmt::format("{} per rank{} and step", fmt::join(work, ", "), of_each));
  line("pipeline", options_.compile.PipelineName(planned().plan.decisions));
  if (std::optional<run::AttentionKind> attention = model.attention())
    line("attention", std::string(Name(*attention)));
  return out;
}

Status TrainingJob::CheckMemory() const {
  run::DeviceMemory memory = OwnMemory();
  std::vector<run::RunMemory> run = Memory();
  Need need = NeedOf(run, RanksHere(), CheckpointBuffer() + SampleMemory());
  if (!memory.available || need.least <= *memory.available) return Done{};
  bool state_alone = need.state > *memory.available;
  std::vector<std::string> largest;
  for (const auto& [name, bytes] : Highest(run).largest) {
    if (largest.size() < 3) largest.push_back(fmt::format("%{} ({})", name, Format(bytes)));
  }
  return Error(Diag::kInfeasible,
               "training needs at least {} here, {} of it parameters, moments and copies of them "
               "for {}; the largest tensors of a step are {}; {} are available; {}",
               Format(need.least), Format(need.state), Counted(RanksHere(), "rank"),
               fmt::join(largest, ", "), Format(*memory.available),
               state_alone ? StateAdvice() : ActivationAdvice());
}

// A larger shard degree helps only if each rank has its own memory: ranks that share one memory
// have all shards there.
std::string TrainingJob::StateAdvice() const {
  const int64_t replicas = planned().layout.degree("replicate");
  const int64_t shards = planned().layout.degree("shard");
  if (replicas > 1)
    return fmt::format(
        "every replica has its own copy: use --parallelism.data_parallel_replicate_degree=1 "
        "--parallelism.data_parallel_shard_degree={}",
        replicas * shards);
  const bool apart = RanksHere() == 1 && !device_.is_cpu();
  if (apart)
    return fmt::format(
        "use more GPUs and a --parallelism.data_parallel_shard_degree above {}, or a smaller model",
        shards);
  if (ranks() > 1 && !device_.is_cpu())
    return fmt::format("all ranks share this GPU: start one process per GPU (--nproc={})", ranks());
  return ranks() > 1
             ? "all ranks share this memory, so more shards do not reduce it: use a smaller "
               "model, or one GPU per rank"
             : "use a smaller model";
}

std::string TrainingJob::ActivationAdvice() const {
  std::vector<std::string> ways;
  if (options_.model.local_batch_size > 1)
    ways.emplace_back("a smaller --training.local_batch_size");
  ways.emplace_back("a smaller --training.seq_len");
  const compile::PlanDecisions& decisions = plan().decisions;
  if (!decisions.decides_memory() && !decisions.budget)
    ways.emplace_back("--activation_checkpoint.mode=full");
  if (decisions.reshard == "never")
    ways.emplace_back("--parallelism.fsdp_reshard_after_forward=always");
  return fmt::format("use {}", fmt::join(ways, " or "));
}

}  // namespace heddle
