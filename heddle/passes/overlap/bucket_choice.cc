#include "heddle/passes/overlap/bucket_choice.h"

#include <algorithm>
#include <map>

#include "heddle/ops/ops.h"
#include "heddle/passes/fsdp/bucket.h"
#include "heddle/passes/overlap/bucket_dp.h"
#include "heddle/passes/overlap/list_scheduler.h"

namespace heddle {
namespace {

// When anchors begin if only collectives that cannot be moved away hold compute up; with `reorder_compute`, if nothing does.
std::vector<Nanos> AnchorTimes(const StepShape& shape, const SimGraph& sim,
                               const std::vector<bool>& merged, bool reorder_compute) {
  std::vector<Nanos> times{sim.around()};
  for (uint32_t anchor : shape.anchors())
    times.push_back(times.back() + sim.tasks()[anchor].compute);
  if (reorder_compute) return times;
  // By anchor: how much longer than the compute that may run beside them its collectives take.
  std::vector<Nanos> stall(shape.anchors().size() + 1);
  for (size_t c = 0; c < shape.collectives().size(); ++c) {
    const StepShape::Collective& one = shape.collectives()[c];
    if (merged[c] || one.deadline == StepShape::kNone) continue;
    Nanos beside = times[one.deadline] - times[std::min(one.release, one.deadline)];
    stall[one.deadline] = std::max(stall[one.deadline], one.length - beside);
  }
  Nanos sum;
  for (size_t i = 0; i < times.size(); ++i) {
    sum += stall[i];
    times[i] += sum;
  }
  return times;
}

// What a way to merge is made for.
struct BucketTerms {
  // The most that a sequence holds.
  Bytes room;
  // How much slower its communicator is: others use it, too.
  int64_t slower = 1;
};

class BucketChooser {
 public:
  BucketChooser(const Module& module, const Graph& graph, const CostModel& model,
                const SimGraph& sim, Bytes cap, bool reorder_compute)
      : graph_(graph), shape_(graph, sim, reorder_compute), collectives_(model, module.mesh) {
    std::vector<bool> merged(shape_.collectives().size());
    for (NodeId id : graph.nodes()) {
      if (!IsUnshard(graph, id) && !IsGradReduction(graph, id)) continue;
      std::optional<BucketKey> key = KeyOf(graph, id);
      uint32_t number = shape_.collective_of(id.index());
      if (!key || number == StepShape::kNone) continue;
      sequences_[*key].push_back(id);
      merged[number] = true;
    }
    times_ = AnchorTimes(shape_, sim, merged, reorder_compute);
    free_ = ListScheduler(shape_, sim).Run({.cap = cap, .ahead = false}, nullptr).live;
    for (Bytes& bytes : free_) bytes = std::max(Bytes{}, cap - bytes);
    if (getenv("OVL_FREE")) {
      for (size_t i = 0; i < free_.size(); i += free_.size() / 100) {
        Bytes m{INT64_MAX};
        for (size_t j = i; j < std::min(free_.size(), i + free_.size() / 100); ++j) m = std::min(m, free_[j]);
        fprintf(stderr, "%zu:%ld@%ld ", i, m.value >> 20, times_[i].value / 1000000);
      }
      fprintf(stderr, "\n");
    }
    for (auto& [key, sequence] : sequences_) {
      std::ranges::stable_sort(sequence, {}, [&](NodeId id) {
        const StepShape::Collective& c = Of(id);
        return PlaceOf(c);
      });
    }
  }

  Result<Buckets> Choose(const BucketTerms& terms) {
    Buckets buckets;
    for (const auto& [key, sequence] : sequences_) {
      BucketProblem problem;
      HEDDLE_RETURN_IF_ERROR(Describe(sequence, terms, problem));
      std::vector<size_t> begins = ChooseBuckets(problem);
      for (size_t b = 0; b < begins.size(); ++b) {
        size_t end = b + 1 < begins.size() ? begins[b + 1] : sequence.size();
        std::vector<NodeId> bucket(sequence.begin() + static_cast<ptrdiff_t>(begins[b]),
                                   sequence.begin() + static_cast<ptrdiff_t>(end));
        std::ranges::sort(bucket);
        buckets.push_back(std::move(bucket));
      }
    }
    return buckets;
  }

 private:
  const StepShape::Collective& Of(NodeId id) const {
    return shape_.collectives()[shape_.collective_of(id.index())];
  }

  // Where the members of a bucket meet: gathers where they are needed, reductions where they are made.
  static uint32_t PlaceOf(const StepShape::Collective& c) {
    return c.reduction ? c.release : c.deadline;
  }

  // What the plain order leaves free from one place up to another. A bucket is packed into a copy, so half of that may be held.
  Bytes RoomBetween(uint32_t first, uint32_t last) const {
    Bytes room{INT64_MAX};
    for (size_t i = first; i <= last && i < free_.size(); ++i) room = std::min(room, free_[i]);
    return {room.value / 2};
  }

  Status Describe(const std::vector<NodeId>& sequence, const BucketTerms& terms,
                  BucketProblem& problem) {
    CollectiveKind kind = *CollectiveKindOf(graph_[sequence[0]].op);
    Axes over = std::get<Axes>(*graph_.attrs(sequence[0]).Find("over"));
    std::vector<Bytes> given{Bytes{}};
    std::vector<int64_t> tensors{0};
    uint32_t last_place = 0;
    for (NodeId id : sequence) {
      const StepShape::Collective& c = Of(id);
      BucketJob job{
          .release = times_[c.release], .deadline = {INT64_MAX}, .given = {}, .held = c.held, .room = {}};
      job.room = std::min(terms.room, RoomBetween(last_place, PlaceOf(c)));
      last_place = PlaceOf(c);
      if (c.deadline != StepShape::kNone) job.deadline = times_[c.deadline];
      for (ValueId v : graph_.operands(id)) job.given += graph_.types().bytes(graph_.type(v));
      given.push_back(given.back() + job.given);
      tensors.push_back(tensors.back() + static_cast<int64_t>(graph_.operands(id).size()));
      problem.jobs.push_back(job);
    }
    problem.compute = times_.back();
    // That prices are known: of one they are, and then of more.
    HEDDLE_RETURN_IF_ERROR(collectives_.Bucket(kind, given[1], 1, over));
    problem.price = [this, kind, over, given, tensors, terms](size_t first, size_t last) {
      BucketCost cost = *collectives_.Bucket(kind, given[last] - given[first],
                                             tensors[last] - tensors[first], over);
      cost.length = cost.length * terms.slower;
      return cost;
    };
    return Done{};
  }

  const Graph& graph_;
  StepShape shape_;
  CollectiveCosts collectives_;
  std::map<BucketKey, std::vector<NodeId>> sequences_;
  std::vector<Nanos> times_;
  // By anchor: what of the cap the order without anything ahead leaves.
  std::vector<Bytes> free_;
};

}  // namespace

Result<std::vector<Buckets>> BucketCandidates(const Module& module, const Graph& graph,
                                              const CostModel& model, const SimGraph& sim,
                                              Bytes cap, const OverlapOptions& options) {
  std::vector<Buckets> candidates;
  if (options.buckets.kind == BucketRule::Kind::kNone) return candidates;
  auto by_size = [&](Bytes size) {
    Graph copy = graph;
    AnalysisCache analyses;
    PassContext context(module.mesh, analyses);
    Bucketer bucketer(copy, context, PayloadOrder::kParameter);
    candidates.push_back(BucketsBySize(copy, bucketer, size));
  };
  if (options.buckets.kind == BucketRule::Kind::kSize) {
    by_size(options.buckets.size);
    return candidates;
  }
  bool reorder_compute = options.reorder_compute && !options.strict;
  BucketChooser chooser(module, graph, model, sim, cap, reorder_compute);
  std::vector<int64_t> rooms_mib = {256, 4096};
  std::vector<int64_t> slower = {1, 2, 4};
  if (options.effort == Effort::kFast) slower = {2};
  if (options.effort == Effort::kBest) rooms_mib = {64, 128, 256, 512, 1024, 8192};
  for (int64_t times : slower) {
    for (int64_t room : rooms_mib) {
      HEDDLE_TRY(Buckets buckets, chooser.Choose({MiB(room), times}));
      if (std::ranges::find(candidates, buckets) == candidates.end())
        candidates.push_back(std::move(buckets));
    }
  }
  if (options.effort == Effort::kFast) return candidates;
  for (int64_t size : {25, 100, 400}) by_size(MiB(size));
  return candidates;
}

Changed MergeBuckets(Graph& graph, PassContext& context, const Buckets& buckets) {
  Bucketer bucketer(graph, context, PayloadOrder::kParameter);
  for (const std::vector<NodeId>& bucket : buckets) bucketer.Add(bucket);
  return bucketer.Finish();
}

}  // namespace heddle
