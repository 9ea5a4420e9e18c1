#include "heddle/search/memory/trial.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/base/text.h"
#include "heddle/core/kernel/kernel_memory.h"

namespace heddle::search {
namespace {

compile::Pipeline Program(std::string_view text) {
  Result<compile::Pipeline> pipeline =
      compile::ParsePipeline(text, compile::Passes(), compile::Author::kProgram);
  HEDDLE_CHECK(pipeline.ok(), "a pipeline of the program's own");
  return *std::move(pipeline);
}

int64_t StatOf(std::span<const compile::PassRecord> passes, std::string_view pass,
               std::string_view stat) {
  int64_t sum = 0;
  for (const compile::PassRecord& record : passes) {
    if (record.pass.substr(0, record.pass.find('{')) != pass) continue;
    for (const auto& [name, n] : record.stats) sum += name == stat ? n : 0;
  }
  return sum;
}

// `alive`: names and bytes of values at the peak, largest first.
std::string FormatPeak(Bytes inputs, Bytes peak,
                       std::span<const std::pair<std::string, Bytes>> alive) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> parts;
  if (inputs > Bytes{}) parts.push_back(fmt::format("{} of inputs", Format(inputs)));
  Bytes rest = peak - inputs;
  for (const auto& [name, bytes] : alive.first(std::min(kNamed, alive.size()))) {
    parts.push_back(fmt::format("{} of %{}", Format(bytes), name));
    rest -= bytes;
  }
  if (rest > Bytes{}) parts.push_back(fmt::format("{} of others", Format(rest)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

Trials::Trials(const Module& module, const compile::Pipeline& after, const price::CostModel& model)
    : module_(module), pipeline_(Program(compile::kCarryOut)), evaluator_(model) {
  pipeline_.insert(pipeline_.end(), after.begin(), after.end());
}

Result<Marks> Trials::MarksOf(std::string_view policy) const {
  Module copy = module_;
  compile::Pipeline mark = Program(fmt::format("checkpoint{{policy={}}}", Quoted(policy)));
  HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(copy, mark));
  Marks marks;
  for (ValueId v : copy.graphs[0].values()) marks.push_back(copy.graphs[0][v].keep);
  return marks;
}

Module Trials::Marked(const Marks& marks) const {
  Module marked = module_;
  Graph& graph = marked.graphs[0];
  Rewriter rewriter(graph);
  for (ValueId v : graph.values()) {
    if (graph[v].keep == Keep::kDefault && marks[v.index()] != Keep::kDefault)
      rewriter.SetKeep(v, marks[v.index()]);
  }
  rewriter.Commit();
  return marked;
}

Result<Module> Trials::CarriedOut(const Marks& marks) const {
  Module module = Marked(marks);
  HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(module, Program(compile::kCarryOut)));
  return module;
}

Result<MemoryChoice> Trials::Run(std::string policy, const Marks& marks) {
  HEDDLE_TRY(Evaluation evaluated, evaluator_.Run(Marked(marks), pipeline_));
  const StepBounds& bounds = evaluated.outcome.bounds;
  Bytes kept = evaluated.kept;
  // The first trial has no decisions.
  if (tried_.empty()) {
    compute_ = bounds.compute;
    inputs_ = bounds.peak - kept;
  }
  MemoryChoice choice;
  static_cast<StepOutcome&>(choice) = evaluated.outcome;
  choice.policy = std::move(policy);
  choice.marks = marks;
  choice.shares = evaluated.shares;
  choice.recompute = std::max(Nanos{}, bounds.compute - compute_);
  choice.kept = kept;
  choice.recomputed = StatOf(evaluated.passes, "rematerialize", "copies");
  choice.offloaded = Bytes{StatOf(evaluated.passes, "offload", "bytes")};
  return choice;
}

Result<const MemoryChoice*> Trials::Try(std::string policy, const Marks& marks) {
  auto known = tried_.find(marks);
  if (known == tried_.end()) {
    HEDDLE_TRY(MemoryChoice choice, Run(std::move(policy), marks));
    known = tried_.emplace(marks, std::move(choice)).first;
  }
  return &known->second;
}

const MemoryChoice& Trials::Smallest() const {
  const MemoryChoice* least = nullptr;
  for (const auto& [marks, choice] : tried_) {
    if (least == nullptr || choice.peak < least->peak) least = &choice;
  }
  return *least;
}

Result<std::string> Trials::HoldsPeak(const MemoryChoice& choice) const {
  Module module = Marked(choice.marks);
  HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(module, pipeline_, evaluator_.Unchecked()));
  const Graph& graph = module.graphs[0];
  if (evaluator_.costs().HasDeviceProgram()) {
    KernelMemory memory = MemoryWithKernels(graph);
    return FormatPeak(memory.inputs + memory.copies, memory.peak, memory.largest);
  }
  Liveness liveness(graph);
  MemoryTimeline timeline = ComputeMemoryTimeline(graph, liveness);
  std::vector<std::pair<std::string, Bytes>> alive;
  for (StorageId id : timeline.alive_at_peak) {
    const Storage& storage = liveness.storages()[id];
    if (storage.birth) alive.emplace_back(graph.name(storage.value), storage.bytes);
  }
  return fmt::format("at %{}: {}", graph.name(graph[timeline.peak_node].first_result),
                     FormatPeak(timeline.inputs, timeline.peak, alive));
}

}  // namespace heddle::search
