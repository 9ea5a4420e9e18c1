#include "heddle/compile/passes/chunks/async_tensor_parallel.h"

#include <algorithm>
#include <unordered_set>

#include "heddle/compile/passes/chunks/chunk_order.h"
#include "heddle/compile/passes/chunks/chunk_region.h"
#include "heddle/compile/passes/chunks/chunk_times.h"
#include "heddle/compile/passes/chunks/region_writer.h"
#include "heddle/compile/passes/overlap/order/order_search.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/sim/explain/movable.h"

namespace heddle::compile {
namespace {

struct Way {
  int64_t chunks;
  // The dimension of the collectives' operands to divide.
  uint32_t dim;
  bool backward;
};

class ChunkSearch {
 public:
  ChunkSearch(const Module& module, const Graph& graph, const price::CostModel& model,
              const price::SimulateOptions& sim, const AsyncOptions& options)
      : module_(module),
        graph_(graph),
        model_(model),
        sim_(sim),
        options_(options),
        uses_(graph),
        movable_(price::FindMovable(graph)) {}

  Status Run();

  AsyncResult& result() { return result_; }
  std::optional<Graph>& found() { return found_; }

 private:
  void FindSeeds(const price::SimGraph& sim);
  std::vector<Way> Ways() const;
  std::optional<Cut> CutOf(NodeId start, uint32_t dim, const CutRules& rules) const;
  Status Try(const Way& way, const price::SimGraph& sim, const price::GraphCosts& costs);
  Result<Nanos> Judge(const Graph& graph, const price::CostModel& model);
  ChunkThreads ThreadsOf(const Graph& graph, const RegionWriter& writer, int64_t chunks,
                         const std::unordered_set<std::string_view>& rest) const;

  const Module& module_;
  const Graph& graph_;
  const price::CostModel& model_;
  const price::SimulateOptions& sim_;
  const AsyncOptions& options_;
  Uses uses_;
  std::vector<bool> movable_;
  Bytes cap_;
  std::vector<NodeId> seeds_;
  AsyncResult result_;
  std::optional<Graph> found_;
};

// Finds collectives that take longer than all compute that could hide them in any order.
void ChunkSearch::FindSeeds(const price::SimGraph& sim) {
  ScheduleConstraints constraints(graph_, sim, Freedom::kNone);
  std::vector<Nanos> times{Nanos{}};
  for (uint32_t anchor : constraints.anchors())
    times.push_back(times.back() + sim.tasks()[anchor].compute);
  for (const ScheduleConstraints::Collective& c : constraints.collectives()) {
    NodeId start(c.start);
    if (!IsCutStart(graph_, start) || c.deadline == ScheduleConstraints::kNone) continue;
    Nanos beside = times[c.deadline] - times[std::min(c.release, c.deadline)];
    if (options_.chunks > 0 || c.length > beside) seeds_.push_back(start);
  }
}

std::optional<Cut> ChunkSearch::CutOf(NodeId start, uint32_t dim, const CutRules& rules) const {
  const Type& type = graph_.types()[graph_.type(graph_.operands(start)[0])];
  // Products sum over the last dimension, so it cannot be divided.
  if (dim + 1 >= type.rank()) return std::nullopt;
  if (graph_[start].op != op::comm_reduce_scatter) return Cut{dim, 1};
  bool parts = rules.DimAttr(start) == static_cast<int64_t>(dim);
  int64_t ranks = module_.mesh.Size(std::get<Axes>(*graph_.attrs(start).Find("over")));
  return Cut{dim, parts ? ranks : 1};
}

std::vector<Way> ChunkSearch::Ways() const {
  auto phase = [&](Phase p) {
    return std::ranges::any_of(seeds_, [&](NodeId id) { return graph_[id].phase == p; });
  };
  bool forward = phase(Phase::kForward);
  bool backward = phase(Phase::kBackward);
  std::vector<int64_t> counts{2, 4, 8};
  if (options_.chunks > 0) counts = {options_.chunks};
  std::vector<Way> ways;
  constexpr uint32_t kDims = 2;
  for (int64_t chunks : counts) {
    for (uint32_t dim = 0; dim < kDims; ++dim) {
      if (forward) ways.push_back({chunks, dim, false});
      if (backward) ways.push_back({chunks, dim, true});
    }
  }
  return ways;
}

Result<Nanos> ChunkSearch::Judge(const Graph& graph, const price::CostModel& model) {
  HEDDLE_TRY(price::GraphCosts costs, model.Price(module_, graph));
  price::SimGraph sim(graph, costs, sim_.memory);
  OrderSearch search(graph, sim, price::TimelineOptions(model, sim_), options_.overlap,
                     options_.overlap.freedom());
  FoundOrder found = search.Run(cap_, false);
  return found.order.empty() ? Nanos{INT64_MAX} : found.outcome.makespan;
}

ChunkThreads ChunkSearch::ThreadsOf(const Graph& graph, const RegionWriter& writer, int64_t chunks,
                                    const std::unordered_set<std::string_view>& rest) const {
  ChunkThreads threads{.chunks = static_cast<uint32_t>(chunks),
                       .chunk_of = std::vector<uint32_t>(graph.node_count(), kNoChunk),
                       .floats = price::FindMovable(graph),
                       .fills = std::vector<bool>(graph.node_count())};
  for (NodeId id : graph.nodes()) {
    if (graph[id].result_count == 0 || rest.contains(graph.name(graph[id].first_result))) continue;
    threads.floats[id.index()] = true;
    threads.fills[id.index()] = graph[id].op == op::cat;
  }
  for (const PieceCopy& copy : writer.copies()) {
    NodeId id = graph[graph.FindValue(copy.name)].producer;
    threads.floats[id.index()] = threads.fills[id.index()] = false;
    threads.chunk_of[id.index()] = static_cast<uint32_t>(copy.piece);
  }
  return threads;
}

Status ChunkSearch::Try(const Way& way, const price::SimGraph& sim,
                        const price::GraphCosts& costs) {
  CutRules rules(graph_, module_.mesh, way.chunks);
  ChunkRegion region(graph_, uses_, rules, movable_);
  for (NodeId seed : seeds_) {
    if (graph_[seed].phase == Phase::kBackward && !way.backward) continue;
    if (std::optional<Cut> cut = CutOf(seed, way.dim, rules)) region.Grow(seed, *cut);
  }
  region.Trim(sim, model_, options_.chunks == 0);
  size_t collectives = region.collectives();
  if (collectives == 0) return Done{};
  std::unordered_set<std::string_view> rest;
  for (NodeId id : graph_.nodes()) {
    if (!region.has(id) && graph_[id].result_count > 0)
      rest.insert(graph_.name(graph_[id].first_result));
  }
  Graph graph = graph_;
  RegionWriter writer(graph, module_.mesh, region);
  HEDDLE_RETURN_IF_ERROR(writer.Run());
  HEDDLE_TRY(auto times, TimesOfChunks(module_, graph_, graph, model_, costs, writer));
  HEDDLE_TRY(price::CostModel model, WithTimes(model_, times));
  HEDDLE_TRY(price::GraphCosts chunked, model.Price(module_, graph));
  price::SimGraph chunked_sim(graph, chunked, sim_.memory);
  std::vector<NodeId> order =
      OrderOfChunks(graph, chunked_sim, ThreadsOf(graph, writer, way.chunks, rest));
  Rewriter rewriter(graph);
  rewriter.Reorder(order);
  rewriter.Commit();
  HEDDLE_TRY(Nanos makespan, Judge(graph, model));
  bool asked = options_.chunks > 0 && !found_;
  if (!asked && makespan >= result_.after) return Done{};
  result_ = {Changed::kYes, way.chunks, collectives, result_.before, makespan, std::move(times)};
  found_ = std::move(graph);
  return Done{};
}

Status ChunkSearch::Run() {
  HEDDLE_TRY(price::GraphCosts costs, model_.Price(module_, graph_));
  price::SimGraph sim(graph_, costs, sim_.memory);
  price::Replay replay(sim, price::TimelineOptions(model_, sim_));
  // Chunks requested by the user ignore the memory limit.
  cap_ = options_.chunks > 0 ? Bytes{INT64_MAX} : options_.overlap.memory.Of(replay.outcome().peak);
  FindSeeds(sim);
  if (seeds_.empty()) return Done{};
  HEDDLE_TRY(result_.before, Judge(graph_, model_));
  result_.after = result_.before;
  for (const Way& way : Ways()) HEDDLE_RETURN_IF_ERROR(Try(way, sim, costs));
  return Done{};
}

}  // namespace

Result<price::CostModel> WithTimes(const price::CostModel& model,
                                   const std::map<std::string, Nanos, std::less<>>& times) {
  if (times.empty()) return model;
  price::MeasuredCosts measured = *model.measured();
  for (const auto& [name, time] : times) measured.nodes[name] = time;
  return price::CostModel::Make(model.cluster(), model.options(), std::move(measured));
}

Result<AsyncResult> AsyncTensorParallel(const Module& module, Graph& graph,
                                        const price::CostModel& model,
                                        const price::SimulateOptions& sim,
                                        const AsyncOptions& options) {
  if (options.chunks < 0 || options.chunks == 1)
    return Error(Diag::kPassOption,
                 "`chunks` is {}; expected 2 or more, or 0 for the fastest number", options.chunks);
  ChunkSearch search(module, graph, model, sim, options);
  HEDDLE_RETURN_IF_ERROR(search.Run());
  if (search.found()) graph = std::move(*search.found());
  return std::move(search.result());
}

}  // namespace heddle::compile
