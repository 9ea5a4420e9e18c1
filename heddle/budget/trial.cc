#include "heddle/budget/trial.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "heddle/analysis/memory.h"
#include "heddle/base/text.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/passes.h"
#include "heddle/report/summary.h"
#include "heddle/sim/timeline/replay.h"

namespace heddle {
namespace {

constexpr double kThousandths = 1000;

Pipeline Program(std::string_view text) {
  Result<Pipeline> pipeline = ParsePipeline(text, Passes(), Author::kProgram);
  HEDDLE_CHECK(pipeline.ok(), "a pipeline of the program's own");
  return *std::move(pipeline);
}

int64_t StatOf(const RunReport& report, std::string_view pass, std::string_view stat) {
  int64_t sum = 0;
  for (const PassRecord& record : report.passes) {
    if (record.pass.substr(0, record.pass.find('{')) != pass) continue;
    for (const auto& [name, n] : record.stats) sum += name == stat ? n : 0;
  }
  return sum;
}

}  // namespace

Trials::Trials(const Module& module, const Pipeline& after, const CostModel& model)
    : module_(module), pipeline_(Program(kCarryOut)), model_(model) {
  pipeline_.insert(pipeline_.end(), after.begin(), after.end());
}

Result<Marks> Trials::MarksOf(std::string_view policy) const {
  Module copy = module_;
  Pipeline mark = Program(fmt::format("checkpoint{{policy={}}}", Quoted(policy)));
  HEDDLE_RETURN_IF_ERROR(RunPipeline(copy, mark));
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
  HEDDLE_RETURN_IF_ERROR(RunPipeline(module, Program(kCarryOut)));
  return module;
}

Result<MemoryChoice> Trials::Run(std::string policy, const Marks& marks) {
  Module module = Marked(marks);
  ManagerOptions unchecked;
  unchecked.check = false;
  HEDDLE_TRY(RunReport report, RunPipeline(module, pipeline_, unchecked));
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(GraphCosts costs, model_.Price(module, graph));
  SimGraph sim(graph, costs);
  double slowdown = model_.cluster().device.overlap_slowdown;
  Replay replay(sim, {.slowdown = static_cast<int64_t>(slowdown * kThousandths + 0.5)});
  // Where nothing is decided comes first.
  if (tried_.empty()) {
    compute_ = sim.compute();
    inputs_ = sim.inputs();
  }
  return MemoryChoice{.policy = std::move(policy),
                      .marks = marks,
                      .peak = replay.outcome().peak,
                      .step = replay.outcome().makespan,
                      .recompute = std::max(Nanos{}, sim.compute() - compute_),
                      .kept = KeptForBackward(graph),
                      .recomputed = StatOf(report, "rematerialize", "copies"),
                      .offloaded = Bytes{StatOf(report, "offload", "bytes")},
                      .bound = {}};
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
  constexpr size_t kNamed = 3;
  Module module = Marked(choice.marks);
  HEDDLE_RETURN_IF_ERROR(RunPipeline(module, pipeline_));
  const Graph& graph = module.graphs[0];
  Liveness liveness(graph);
  MemoryTimeline timeline = ComputeMemoryTimeline(graph, liveness);
  std::vector<std::string> parts;
  if (timeline.inputs > Bytes{})
    parts.push_back(fmt::format("{} of inputs", Format(timeline.inputs)));
  Bytes rest = timeline.peak - timeline.inputs;
  size_t named = 0;
  for (StorageId id : timeline.alive_at_peak) {
    const Storage& storage = liveness.storages()[id];
    if (!storage.birth || named++ >= kNamed) continue;
    parts.push_back(fmt::format("{} of %{}", Format(storage.bytes), graph.name(storage.value)));
    rest -= storage.bytes;
  }
  if (rest > Bytes{}) parts.push_back(fmt::format("{} of others", Format(rest)));
  return fmt::format("at %{}: {}", graph.name(graph[timeline.peak_node].first_result),
                     fmt::join(parts, ", "));
}

}  // namespace heddle
