#include "heddle/search/arrangement/pipeline_search.h"

#include <algorithm>
#include <utility>

#include "heddle/price/pipeline/bounds.h"

namespace heddle::search {
namespace {

// Most stages per rank.
constexpr int64_t kMostChunks = 4;
// Micro-batches with at least this many tokens on a rank fill a device, so larger ones only keep
// more activations.
constexpr int64_t kEnoughTokens = 8192;
// Most layers times micro-batches, because the graphs of all coordinates have a copy of each.
constexpr int64_t kMostLayerRuns = 20'000;

// The costs of each stage that its micro-batches share.
std::vector<SharedCosts> SharedByStage(const ModelCosts& costs,
                                       const std::vector<int64_t>& firsts) {
  std::vector<SharedCosts> out(firsts.size());
  for (size_t position = 0; position < costs.shared.size(); ++position) {
    auto next = std::ranges::upper_bound(firsts, static_cast<int64_t>(position));
    out[static_cast<size_t>(next - firsts.begin()) - 1] += costs.shared[position];
  }
  return out;
}

// The axes of the ranks that share weights.
Axes ShardAxes(const Mesh& mesh) {
  Axes out;
  for (size_t i = 0; i < mesh.axes().size(); ++i) {
    if (mesh.axes()[i].role == AxisRole::kShard) out.Add(static_cast<AxisId>(i));
  }
  return out;
}

// A pipeline with predicted costs.
class Predicted {
 public:
  Predicted(const price::CostModel& model, const Arrangement& arrangement,
            const PipelineSchedule& schedule, const price::PipelineCosts& stages,
            const ModelCosts& costs, const std::vector<int64_t>& firsts)
      : schedule_(schedule),
        stages_(stages),
        costs_(costs),
        shared_(SharedByStage(costs, firsts)),
        rank_of_stage_(RanksOfStages(schedule)),
        mesh_(MeshOf(arrangement)),
        collectives_(model, mesh_),
        over_(ShardAxes(mesh_)),
        shard_(arrangement.shard) {
    std::vector<Nanos> optimizer(schedule.ranks.size());
    for (size_t stage = 0; stage < shared_.size(); ++stage)
      optimizer[RankOf(stage)] += shared_[stage].optimizer;
    optimizer_ = *std::ranges::max_element(optimizer);
    for (size_t stage = 0; stage < firsts.size(); ++stage) {
      const bool last = stage + 1 == firsts.size();
      const int64_t end = last ? std::ssize(costs.positions) - 1 : firsts[stage + 1];
      layers_.push_back(end - std::max<int64_t>(1, firsts[stage]));
    }
  }

  // With the optimizer, which waits for the gradients of all ranks, because of the gradient norm.
  price::PipelineBounds Bounds(const std::vector<int64_t>& in_flight) const {
    price::PipelineBounds out =
        price::FindPipelineBounds(rank_of_stage_, schedule_.micro_batches, stages_, in_flight);
    out.any += optimizer_;
    out.within_memory += optimizer_;
    return out;
  }

  // Weights are gathered before the first micro-batch, and gradients reduced after the last one.
  Nanos Step(const price::PipelineTimes& times) {
    std::vector<SharedCosts> sums(times.ranks.size());
    for (size_t stage = 0; stage < shared_.size(); ++stage) sums[RankOf(stage)] += shared_[stage];
    Nanos gather;
    Nanos reduced;
    for (size_t rank = 0; rank < times.ranks.size(); ++rank) {
      gather =
          std::max(gather, Time(CollectiveKind::kAllGather, {sums[rank].weights.value / shard_}));
      reduced = std::max(reduced, times.ranks[rank].end.back() +
                                      Time(CollectiveKind::kReduceScatter, sums[rank].gradients));
    }
    return gather + reduced + optimizer_;
  }

  // A stage has weights until its last action, and gradients from its first backward on.
  Bytes Peak() const {
    Bytes peak;
    for (const std::vector<PipelineAction>& actions : schedule_.ranks)
      peak = std::max(peak, PeakOf(actions));
    return peak;
  }

 private:
  size_t RankOf(size_t stage) const { return static_cast<size_t>(rank_of_stage_[stage]); }

  Nanos Time(CollectiveKind kind, Bytes given) {
    if (over_.empty()) return {};
    Result<price::CollectiveCost> cost = collectives_.Cost(kind, given, over_);
    return cost.ok() ? cost->total() : Nanos{};
  }

  Bytes PeakOf(const std::vector<PipelineAction>& actions) const {
    // By stage: forwards and whole backwards so far.
    struct Done {
      int64_t forward = 0;
      int64_t backward = 0;
    };
    std::vector<Done> done(shared_.size());
    Bytes now;
    Bytes peak;
    for (const PipelineAction& action : actions) {
      auto stage = static_cast<size_t>(action.stage);
      const SharedCosts& shared = shared_[stage];
      const bool last = stage + 1 == shared_.size();
      const Bytes activations = stages_.stages[stage].activations;
      const Bytes output = last ? costs_.output : Bytes{};
      const Bytes recomputed = costs_.recomputed * layers_[stage];
      const PipelineWork work = action.work;
      if (work == PipelineWork::kForward) {
        if (done[stage].forward++ == 0) now += shared.state + shared.weights;
        now += activations + output;
        peak = std::max(peak, now);
        continue;
      }
      const bool whole = work != PipelineWork::kInputGradient;
      if (whole && done[stage].backward++ == 0) now += shared.gradients;
      peak = std::max(peak, now + costs_.workspace);
      if (work != PipelineWork::kWeightGradient) now -= output;
      if (!whole) now += recomputed;
      if (!whole) continue;
      if (work == PipelineWork::kWeightGradient) now -= recomputed;
      now -= activations;
      if (done[stage].backward == schedule_.micro_batches) now -= shared.weights + shared.gradients;
    }
    return peak;
  }

  const PipelineSchedule& schedule_;
  const price::PipelineCosts& stages_;
  const ModelCosts& costs_;
  std::vector<SharedCosts> shared_;
  // Layers of each stage.
  std::vector<int64_t> layers_;
  std::vector<int32_t> rank_of_stage_;
  Mesh mesh_;
  price::CollectiveCosts collectives_;
  Axes over_;
  int64_t shard_;
  Nanos optimizer_;
};

}  // namespace

std::vector<PipelineSearch::Order> PipelineSearch::Orders() {
  std::vector<Order> out;
  for (const ScheduleFamily& family : ScheduleFamilies()) {
    if (family.stages == StagesPerRank::kOne) out.push_back({&family, 1});
    if (family.stages == StagesPerRank::kTwo) out.push_back({&family, 2});
    if (family.stages != StagesPerRank::kAny) continue;
    for (int64_t chunks = 2; chunks <= kMostChunks; ++chunks) out.push_back({&family, chunks});
  }
  return out;
}

int64_t PipelineSearch::SequencesOf(const Arrangement& arrangement) const {
  return evaluator_.global_batch() / arrangement.batch_ranks() / arrangement.micro_batches;
}

std::vector<Arrangement> PipelineSearch::Candidates(const ArrangementSpace& space) const {
  const int64_t layers = evaluator_.model().layers;
  std::vector<Arrangement> out = PipelineArrangements(space, layers);
  std::erase_if(
      out, [&](const Arrangement& one) { return one.micro_batches > kMostLayerRuns / layers; });
  // By ranks: the most micro-batches that fill a device.
  std::map<Arrangement, int64_t> enough;
  auto ranks_of = [](Arrangement one) {
    one.micro_batches = 1;
    return one;
  };
  for (const Arrangement& one : out) {
    int64_t tokens = SequencesOf(one) * evaluator_.model().seq_len;
    int64_t& most = enough[ranks_of(one)];
    if (tokens >= kEnoughTokens) most = std::max(most, one.micro_batches);
  }
  std::erase_if(out,
                [&](const Arrangement& one) { return one.micro_batches < enough[ranks_of(one)]; });
  return out;
}

Result<ModelCosts> PipelineSearch::CostsFor(const Arrangement& arrangement,
                                            const std::string& policy) {
  CostKey key(arrangement.tensor, arrangement.experts, SequencesOf(arrangement), policy);
  auto known = known_.find(key);
  if (known == known_.end()) {
    SearchPoint point{.arrangement = arrangement, .policy = policy};
    Result<ModelCosts> costs = evaluator_.PipelineCosts(point);
    if (!costs.ok())
      notes_.push_back(
          fmt::format("{} is left out: {}", Format(arrangement), costs.diagnostics()[0].message));
    known = known_.emplace(key, KnownCosts{std::move(costs), arrangement.shard}).first;
  }
  Result<ModelCosts> out = known->second.costs;
  if (!out.ok()) return out;
  if (policy != "none") {
    HEDDLE_TRY(ModelCosts all, CostsFor(arrangement, "none"));
    out->recomputed = all.positions[1].cost.activations - out->positions[1].cost.activations;
  }
  for (SharedCosts& shared : out->shared) {
    shared.state = {shared.state.value / arrangement.shard * known->second.shard};
    shared.optimizer = {shared.optimizer.value / arrangement.shard * known->second.shard};
  }
  return out;
}

Nanos PipelineSearch::LeastStep(const Arrangement& arrangement, const ModelCosts& costs) const {
  Nanos work;
  Nanos optimizer;
  for (const price::PositionCost& position : costs.positions)
    work += position.cost.forward + position.cost.input_gradient + position.cost.weight_gradient;
  for (const SharedCosts& shared : costs.shared) optimizer += shared.optimizer;
  return {((work * arrangement.micro_batches) + optimizer).value / arrangement.pipeline};
}

Nanos PipelineSearch::Limit() const {
  Nanos best{INT64_MAX};
  for (const PredictedPipeline& one : found_) {
    if (one.peak <= budget_) best = std::min(best, one.step);
  }
  return best.value == INT64_MAX ? best : WithMargin(best);
}

std::vector<PredictedPipeline> PipelineSearch::Run(const ArrangementSpace& space) {
  struct Bounded {
    Arrangement arrangement;
    Nanos least;
  };
  std::vector<Bounded> candidates;
  if (evaluator_.model().layers <= evaluator_.model().small_layers + 1) return {};
  const size_t orders = Orders().size();
  for (const Arrangement& one : Candidates(space)) {
    points_ += orders * std::size(kCheckpointPolicies);
    // Recomputation only adds work.
    Result<ModelCosts> costs = CostsFor(one, "none");
    if (costs.ok()) candidates.push_back({one, LeastStep(one, *costs)});
  }
  std::ranges::stable_sort(candidates, {}, &Bounded::least);
  for (const Bounded& one : candidates) {
    for (std::string_view policy : kCheckpointPolicies) {
      if (one.least > Limit()) break;
      TryPolicy(one.arrangement, std::string(policy));
    }
  }
  std::erase_if(found_, [&, limit = Limit()](const auto& one) { return one.step > limit; });
  std::ranges::stable_sort(found_, [](const auto& a, const auto& b) {
    return std::pair(a.step, a.peak) < std::pair(b.step, b.peak);
  });
  return found_;
}

void PipelineSearch::TryPolicy(const Arrangement& arrangement, const std::string& policy) {
  Result<ModelCosts> costs = CostsFor(arrangement, policy);
  if (!costs.ok() || LeastStep(arrangement, *costs) > Limit()) return;
  // A pipeline gathers weights once per step, and keeps them.
  SearchPoint point{.arrangement = arrangement, .policy = policy};
  point.reshard = arrangement.shards_params() ? "never" : "default";
  for (const Order& order : Orders()) TryOrder(point, *costs, order);
}

void PipelineSearch::TryOrder(SearchPoint point, const ModelCosts& costs, const Order& order) {
  const Arrangement& arrangement = point.arrangement;
  const int64_t stages = arrangement.pipeline * order.chunks;
  if (stages > std::ssize(costs.positions)) return;
  Result<PipelineSchedule> schedule =
      MakeSchedule(*order.family, {arrangement.pipeline, stages, arrangement.micro_batches});
  if (!schedule.ok()) return;
  point.schedule = schedule->name;
  point.first_positions = price::BalanceStages(costs.positions, stages);
  const price::Cluster& cluster = evaluator_.costs().cluster();
  auto stages_with = [&](bool between_nodes) {
    return price::SumOfStages(costs.positions, costs.every_stage, point.first_positions, cluster,
                              between_nodes);
  };
  // If some transfers leave a node and others do not, the slow ones decide how long a step takes.
  // A bound assumes that all are fast.
  const int64_t ranks = arrangement.coordinate_ranks();
  const price::PipelineCosts least = stages_with(ranks >= cluster.devices_per_node);
  const price::PipelineCosts likely =
      stages_with(ranks * arrangement.pipeline > cluster.devices_per_node);
  Predicted predicted(evaluator_.costs(), arrangement, *schedule, least, costs,
                      point.first_positions);
  std::vector<int64_t> in_flight(schedule->ranks.size(), 1);
  if (predicted.Bounds(in_flight).any > Limit()) return;
  PredictedPipeline out;
  out.peak = evaluator_.costs().DevicePeak(predicted.Peak());
  if (out.least_peak() > budget_) return;
  price::PipelineTimes times = price::FindPipelineTimes(*schedule, likely);
  out.step = predicted.Step(times);
  if (out.step > Limit()) return;
  for (size_t rank = 0; rank < in_flight.size(); ++rank)
    in_flight[rank] = times.ranks[rank].most_in_flight;
  out.bound = predicted.Bounds(in_flight).within_memory;
  out.point = std::move(point);
  found_.push_back(std::move(out));
}

}  // namespace heddle::search
