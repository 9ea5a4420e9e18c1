#include "heddle/passes/overlap/bucket_choice.h"

#include <algorithm>
#include <map>
#include <ranges>

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
  // What hands in more goes alone: packing it costs more than its launch.
  Bytes largest;
  // How much slower communicators are taken to be, in hundredths: several sequences share them.
  int64_t slower = 100;
};

// A way to merge, and whether collectives then take no longer than compute.
struct BucketWay {
  Buckets buckets;
  bool fits = true;
};

class BucketChooser {
 public:
  // What is alive in the order without anything ahead leaves room under `cap`.
  BucketChooser(const Module& module, const Graph& graph, const CostModel& model,
                const SimGraph& sim, Bytes cap, bool reorder_compute)
      : graph_(graph), shape_(graph, sim, reorder_compute), collectives_(model, module.mesh) {
    mergeable_.resize(shape_.collectives().size());
    for (NodeId id : graph.nodes()) {
      if (!IsUnshard(graph, id) && !IsGradReduction(graph, id)) continue;
      std::optional<BucketKey> key = KeyOf(graph, id);
      uint32_t number = shape_.collective_of(id.index());
      if (!key || number == StepShape::kNone) continue;
      sequences_[*key].push_back(id);
      mergeable_[number] = true;
    }
    times_ = AnchorTimes(shape_, sim, mergeable_, reorder_compute);
    free_ = ListScheduler(shape_, sim).Run({.cap = cap, .ahead = false}, nullptr).live;
    for (Bytes& bytes : free_) bytes = std::max(Bytes{}, cap - bytes);
    for (auto& [key, sequence] : sequences_)
      std::ranges::stable_sort(sequence, {}, [&](NodeId id) { return PlaceOf(Of(id)); });
  }

  Result<BucketWay> Choose(const BucketTerms& terms) {
    // Each sequence is cut beside what the others do: first as they are, then as they were cut.
    std::vector<Load> fixed;
    std::map<BucketKey, std::vector<NodeId>> small;
    std::map<BucketKey, std::vector<Load>> loads;
    for (const StepShape::Collective& c : shape_.collectives()) {
      if (!IsSmall(c, terms)) fixed.push_back(LoadOf(c));
    }
    for (const auto& [key, sequence] : sequences_) {
      for (NodeId id : sequence) {
        if (!IsSmall(Of(id), terms)) continue;
        small[key].push_back(id);
        loads[key].push_back(LoadOf(Of(id)));
      }
    }
    std::map<BucketKey, Buckets> cut;
    for (int round = 0; round < 2; ++round) {
      for (const auto& [key, sequence] : small) {
        std::vector<Load> others = fixed;
        for (const auto& [other, load] : loads) {
          if (other != key) others.insert(others.end(), load.begin(), load.end());
        }
        HEDDLE_RETURN_IF_ERROR(Cut(sequence, terms, std::move(others), loads[key], cut[key]));
      }
    }
    return Together(cut, fixed, loads);
  }

  // Sizes up to which to merge: all, and those below sizes that make up much of what travels.
  std::vector<Bytes> Largest() const {
    std::map<Bytes, Bytes> of_size;
    Bytes all;
    for (const auto& [key, sequence] : sequences_) {
      for (NodeId id : sequence) {
        of_size[Given(id)] += Given(id);
        all += Given(id);
      }
    }
    std::vector<Bytes> largest{{INT64_MAX}};
    Bytes above;
    Bytes counted;
    for (const auto& [size, sum] : std::views::reverse(of_size)) {
      if ((above - counted) * 4 > all) {
        largest.push_back(size);
        counted = above;
      }
      above += sum;
    }
    return largest;
  }

 private:
  const StepShape::Collective& Of(NodeId id) const {
    return shape_.collectives()[shape_.collective_of(id.index())];
  }
  Bytes Given(NodeId id) const {
    Bytes given;
    for (ValueId v : graph_.operands(id)) given += graph_.types().bytes(graph_.type(v));
    return given;
  }
  // What a launch takes of its communicator, and around which anchor.
  struct Load {
    uint32_t stream;
    uint32_t place;
    Nanos length;
    Nanos due;
  };
  Load LoadOf(const StepShape::Collective& c) const {
    Load load{c.stream, PlaceOf(c), c.length, {INT64_MAX}};
    if (c.deadline != StepShape::kNone && !c.reduction) load.due = times_[c.deadline];
    return load;
  }
  bool IsSmall(const StepShape::Collective& c, const BucketTerms& terms) const {
    return mergeable_[shape_.collective_of(c.start)] && Given(NodeId(c.start)) <= terms.largest;
  }

  // Cuts one sequence; `loads` and `cut` become those of its buckets.
  Status Cut(const std::vector<NodeId>& sequence, const BucketTerms& terms,
             std::vector<Load> others, std::vector<Load>& loads, Buckets& cut) {
    BucketProblem problem;
    HEDDLE_RETURN_IF_ERROR(Describe(sequence, terms, problem));
    AddOthers(sequence, std::move(others), problem);
    std::vector<size_t> begins = ChooseBuckets(problem);
    loads.clear();
    cut.clear();
    for (size_t b = 0; b < begins.size(); ++b) {
      size_t end = b + 1 < begins.size() ? begins[b + 1] : sequence.size();
      loads.push_back(LoadOf(Of(sequence[Of(sequence[begins[b]]).reduction ? end - 1 : begins[b]])));
      loads.back().length = {problem.price(begins[b], end).length.value * 100 / terms.slower};
      cut.emplace_back(sequence.begin() + static_cast<ptrdiff_t>(begins[b]),
                       sequence.begin() + static_cast<ptrdiff_t>(end));
      std::ranges::sort(cut.back());
    }
    return Done{};
  }

  void AddOthers(const std::vector<NodeId>& sequence, std::vector<Load> others,
                 BucketProblem& problem) const {
    std::erase_if(others, [&](const Load& load) { return load.stream != Of(sequence[0]).stream; });
    std::ranges::stable_sort(others, {}, &Load::place);
    size_t next = 0;
    for (size_t i = 0; i < sequence.size(); ++i) {
      for (; next < others.size() && others[next].place <= PlaceOf(Of(sequence[i])); ++next) {
        problem.jobs[i].others += others[next].length;
        problem.jobs[i].others_due = others[next].due;
      }
    }
  }

  BucketWay Together(const std::map<BucketKey, Buckets>& cut, const std::vector<Load>& fixed,
                     const std::map<BucketKey, std::vector<Load>>& loads) const {
    BucketWay way;
    std::map<uint32_t, Nanos> busy;
    for (const Load& load : fixed) busy[load.stream] += load.length;
    for (const auto& [key, of_key] : loads) {
      for (const Load& load : of_key) busy[load.stream] += load.length;
    }
    way.fits = std::ranges::all_of(busy, [&](auto& at) { return at.second <= times_.back(); });
    for (const auto& [key, buckets] : cut) {
      std::ranges::copy_if(buckets, std::back_inserter(way.buckets),
                           [](const auto& bucket) { return bucket.size() > 1; });
    }
    return way;
  }

  // Where the members of a bucket meet: gathers where they are needed, reductions where they are made.
  static uint32_t PlaceOf(const StepShape::Collective& c) {
    return c.reduction ? c.release : c.deadline;
  }

  // What is free from one place up to another. A bucket is packed into a copy, so half of that may be held.
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
      BucketJob job{.release = times_[c.release],
                    .deadline = {INT64_MAX},
                    .given = Given(id),
                    .held = c.held,
                    .room = std::min(terms.room, RoomBetween(last_place, PlaceOf(c))),
                    .others = {}};
      last_place = PlaceOf(c);
      if (c.deadline != StepShape::kNone) job.deadline = times_[c.deadline];
      given.push_back(given.back() + job.given);
      tensors.push_back(tensors.back() + static_cast<int64_t>(graph_.operands(id).size()));
      problem.jobs.push_back(job);
    }
    problem.compute = times_.back();
    // That prices are known: of one they are, and then of more.
    HEDDLE_RETURN_IF_ERROR(collectives_.Bucket(kind, given[1], 1, over));
    int64_t slower = terms.slower;
    problem.price = [this, kind, over, given, tensors, slower](size_t first, size_t last) {
      BucketCost cost = *collectives_.Bucket(kind, given[last] - given[first],
                                             tensors[last] - tensors[first], over);
      cost.length.value = cost.length.value * slower / 100;
      return cost;
    };
    return Done{};
  }

  const Graph& graph_;
  StepShape shape_;
  CollectiveCosts collectives_;
  std::map<BucketKey, std::vector<NodeId>> sequences_;
  std::vector<Nanos> times_;
  // By anchor.
  std::vector<Bytes> free_;
  // By collective.
  std::vector<bool> mergeable_;
};

// Communicators are taken for ever slower until collectives fit beside compute; then a little slower still.
Status AddChosen(BucketChooser& chooser, Effort effort, std::vector<Buckets>& candidates) {
  std::vector<int64_t> rooms_mib = {256, 4096};
  if (effort == Effort::kFast) rooms_mib = {1024};
  if (effort == Effort::kBest) rooms_mib = {64, 128, 256, 512, 1024, 8192};
  const int most = effort == Effort::kFast ? 1 : effort == Effort::kNormal ? 2 : 4;
  constexpr int64_t kSlower[] = {100, 120, 150, 200, 300, 400};
  std::vector<Bytes> sizes = chooser.Largest();
  if (effort == Effort::kFast) sizes.resize(1);
  for (Bytes largest : sizes) {
    for (int64_t room : rooms_mib) {
      int count = 0;
      for (int64_t slower : kSlower) {
        HEDDLE_TRY(BucketWay way, chooser.Choose({MiB(room), largest, slower}));
        if (!way.fits && slower != std::end(kSlower)[-1]) continue;
        if (std::ranges::find(candidates, way.buckets) == candidates.end())
          candidates.push_back(std::move(way.buckets));
        if (++count == most) break;
      }
    }
  }
  return Done{};
}

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
  BucketChooser chooser(module, graph, model, sim, cap, options.reorder_compute);
  HEDDLE_RETURN_IF_ERROR(AddChosen(chooser, options.effort, candidates));
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
