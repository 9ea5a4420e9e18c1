#include "heddle/compile/passes/overlap/buckets/bucket_choice.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <span>
#include <unordered_map>

#include "heddle/compile/passes/fsdp/bucket.h"
#include "heddle/compile/passes/overlap/buckets/bucket_dp.h"
#include "heddle/compile/passes/overlap/order/list_scheduler.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// Times at which anchors begin if compute waits only for collectives that cannot be moved away;
// with `reorder_compute`, if it never waits.
std::vector<Nanos> AnchorTimes(const ScheduleConstraints& constraints, const price::SimGraph& sim,
                               const std::vector<bool>& merged, bool reorder_compute) {
  std::vector<Nanos> times{sim.around()};
  for (uint32_t anchor : constraints.anchors())
    times.push_back(times.back() + sim.tasks()[anchor].compute);
  if (reorder_compute) return times;
  // Indexed by anchor: the time by which its collectives exceed the compute that may overlap them.
  std::vector<Nanos> stall(constraints.anchors().size() + 1);
  for (size_t c = 0; c < constraints.collectives().size(); ++c) {
    const ScheduleConstraints::Collective& one = constraints.collectives()[c];
    if (merged[c] || one.deadline == ScheduleConstraints::kNone) continue;
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

// Parameters of one way to merge collectives.
struct BucketTerms {
  // The memory limit of a sequence.
  Bytes room;
  // Merge launches up to this size first, passing over larger ones, for which packing takes longer
  // than a launch.
  Bytes largest;
  // The assumed time of communicators in percent, because several sequences share them.
  int64_t slower = 100;
  // The counted share of packing in percent. The rest happens while compute waits for other
  // collectives.
  int64_t packing = 100;
};

// Launches that are already merged: one, or a bucket.
struct Unit {
  std::vector<NodeId> members;
  uint32_t stream = 0;
  bool reduction = false;
  // Positions among anchors, as in ScheduleConstraints.
  uint32_t release = 0;
  uint32_t deadline = ScheduleConstraints::kNone;
  Nanos length = {};
  Bytes given = {};
  Bytes held = {};
  int64_t tensors = 0;

  // Where the members of a bucket meet: gathers at their use, reductions at their inputs.
  uint32_t place() const { return reduction ? release : deadline; }
  bool operator==(const Unit& other) const { return members == other.members; }
};
using Units = std::vector<Unit>;

Unit Joined(std::span<const Unit> units, Nanos length) {
  Unit all = units[0];
  for (const Unit& unit : units.subspan(1)) {
    all.members.insert(all.members.end(), unit.members.begin(), unit.members.end());
    all.release = std::max(all.release, unit.release);
    all.deadline = std::min(all.deadline, unit.deadline);
    all.given += unit.given;
    all.held += unit.held;
    all.tensors += unit.tensors;
  }
  all.length = length;
  return all;
}

// Hashes bytes and number of tensors.
struct SizeHash {
  size_t operator()(const std::pair<Bytes, int64_t>& size) const {
    return MixHash(static_cast<uint64_t>(size.first.value), static_cast<uint64_t>(size.second));
  }
};
using Prices = std::unordered_map<std::pair<Bytes, int64_t>, price::BucketCost, SizeHash>;

class BucketChooser {
 public:
  // Memory that the order without early starts leaves below `cap` is available for buckets.
  BucketChooser(const Module& module, const Graph& graph, const price::CostModel& model,
                const price::SimGraph& sim, Bytes cap, Freedom freedom)
      : graph_(graph), constraints_(graph, sim, freedom), collectives_(model, module.mesh) {
    std::vector<bool> mergeable(constraints_.collectives().size());
    for (size_t i = 0; i < constraints_.collectives().size(); ++i) {
      NodeId id(constraints_.collectives()[i].start);
      std::optional<BucketKey> key;
      if (IsUnshard(graph, id) || IsGradReduction(graph, id)) key = KeyOf(graph, id);
      mergeable[i] = key.has_value();
      (key ? sequences_[*key] : fixed_).push_back(UnitOf(constraints_.collectives()[i]));
    }
    for (auto& [key, sequence] : sequences_) std::ranges::stable_sort(sequence, {}, &Unit::place);
    times_ = AnchorTimes(constraints_, sim, mergeable, freedom == Freedom::kAll);
    compute_ = AnchorTimes(constraints_, sim, mergeable, true).back();
    free_ = ListScheduler(constraints_, sim).Run({.cap = cap, .ahead = false}, nullptr).live;
    for (Bytes& bytes : free_) bytes = std::max(Bytes{}, cap - bytes);
  }

  // Merges small launches first, passing over large ones, and then all of them.
  Result<Buckets> Choose(const BucketTerms& terms) {
    std::map<BucketKey, Units> units = sequences_;
    if (terms.largest.value != INT64_MAX) HEDDLE_RETURN_IF_ERROR(CutAll(terms, units));
    BucketTerms any = terms;
    any.largest = {INT64_MAX};
    HEDDLE_RETURN_IF_ERROR(CutAll(any, units));
    Buckets all;
    for (const auto& [key, sequence] : units) {
      for (const Unit& unit : sequence) {
        if (unit.members.size() < 2) continue;
        all.push_back(unit.members);
        std::ranges::sort(all.back());
      }
    }
    return all;
  }

  // Whether collectives that cannot be moved away stall compute for more than a tenth of the step.
  bool StandsStill() const { return (times_.back() - compute_) * 10 > times_.back(); }

  // Sizes up to which to merge first: all, and sizes just below those with a large share of the
  // bytes.
  std::vector<Bytes> Largest() const {
    std::map<Bytes, Bytes> of_size;
    Bytes all;
    for (const auto& [key, sequence] : sequences_) {
      for (const Unit& unit : sequence) {
        of_size[unit.given] += unit.given;
        all += unit.given;
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
  Unit UnitOf(const ScheduleConstraints::Collective& c) const {
    NodeId id(c.start);
    Unit unit{.members = {id},
              .stream = c.stream,
              .reduction = c.reduction,
              .release = c.release,
              .deadline = c.deadline,
              .length = c.length,
              .held = c.held,
              .tensors = static_cast<int64_t>(graph_.operands(id).size())};
    for (ValueId v : graph_.operands(id)) unit.given += graph_.types().bytes(graph_.type(v));
    return unit;
  }

  // Divides each sequence given the others: first with the launches as they are, then with their
  // buckets.
  Status CutAll(const BucketTerms& terms, std::map<BucketKey, Units>& units) {
    const std::map<BucketKey, Units> given = units;
    const int rounds = given.size() > 1 ? 2 : 1;
    for (int round = 0; round < rounds; ++round) {
      for (const auto& [key, sequence] : given) {
        Units small;
        Units others = fixed_;
        for (const Unit& unit : sequence)
          (unit.given <= terms.largest ? small : others).push_back(unit);
        for (const auto& [other, of_other] : units) {
          if (other != key) others.insert(others.end(), of_other.begin(), of_other.end());
        }
        if (small.size() < 2) continue;
        HEDDLE_TRY(units[key], Cut(small, std::move(others), terms));
        for (const Unit& unit : sequence) {
          if (unit.given > terms.largest) units[key].push_back(unit);
        }
        std::ranges::stable_sort(units[key], {}, &Unit::place);
      }
    }
    return Done{};
  }

  Result<Units> Cut(const Units& sequence, Units others, const BucketTerms& terms) {
    BucketProblem problem;
    HEDDLE_RETURN_IF_ERROR(Describe(sequence, terms, problem));
    AddOthers(sequence, std::move(others), terms, problem);
    std::vector<size_t> begins = ChooseBuckets(problem);
    Units cut;
    for (size_t b = 0; b < begins.size(); ++b) {
      size_t end = b + 1 < begins.size() ? begins[b + 1] : sequence.size();
      Nanos length = {problem.price(begins[b], end).length.value * 100 / terms.slower};
      cut.push_back(Joined(std::span(sequence).subspan(begins[b], end - begins[b]), length));
    }
    return cut;
  }

  void AddOthers(const Units& sequence, Units others, const BucketTerms& terms,
                 BucketProblem& problem) const {
    std::erase_if(others, [&](const Unit& unit) { return unit.stream != sequence[0].stream; });
    std::ranges::stable_sort(others, {}, &Unit::place);
    size_t next = 0;
    auto add_up_to = [&](uint32_t place, Nanos& length, Nanos& due) {
      for (; next < others.size() && others[next].place() <= place; ++next) {
        const Unit& other = others[next];
        length.value += other.length.value * terms.slower / 100;
        due = other.reduction ? Nanos{INT64_MAX} : TimeOf(other.deadline);
      }
    };
    for (size_t i = 0; i < sequence.size(); ++i)
      add_up_to(sequence[i].place(), problem.jobs[i].others, problem.jobs[i].others_due);
    add_up_to(ScheduleConstraints::kNone, problem.others, problem.others_due);
  }

  // The time at which an anchor begins; INT64_MAX for none.
  Nanos TimeOf(uint32_t place) const {
    return place == ScheduleConstraints::kNone ? Nanos{INT64_MAX} : times_[place];
  }

  // Free memory between two positions. A bucket is packed into a copy, so it may hold half of that.
  Bytes RoomBetween(uint32_t first, uint32_t last) const {
    Bytes room{INT64_MAX};
    for (size_t i = first; i <= last && i < free_.size(); ++i) room = std::min(room, free_[i]);
    return {room.value / 2};
  }

  Status Describe(const Units& sequence, const BucketTerms& terms, BucketProblem& problem) {
    NodeId launch = sequence[0].members[0];
    CollectiveKind kind = *CollectiveKindOf(graph_[launch].op);
    Axes over = std::get<Axes>(*graph_.attrs(launch).Find("over"));
    std::vector<Bytes> given{Bytes{}};
    std::vector<int64_t> tensors{0};
    uint32_t last_place = 0;
    for (const Unit& unit : sequence) {
      Bytes room = std::min(terms.room, RoomBetween(last_place, unit.place()));
      problem.jobs.push_back({.release = times_[unit.release],
                              .deadline = TimeOf(unit.deadline),
                              .given = unit.given,
                              .held = unit.held,
                              .room = room,
                              .others = {}});
      last_place = unit.place();
      given.push_back(given.back() + unit.given);
      tensors.push_back(tensors.back() + unit.tensors);
    }
    problem.compute = times_.back();
    // Check that prices exist: for one tensor, and for several.
    HEDDLE_RETURN_IF_ERROR(collectives_.Bucket(kind, given[1], 1, over));
    Prices& prices = prices_[*KeyOf(graph_, launch)];
    problem.price = [this, kind, over, given, tensors, terms, &prices](size_t first, size_t last) {
      const std::pair size(given[last] - given[first], tensors[last] - tensors[first]);
      auto [known, is_new] = prices.try_emplace(size);
      if (is_new) known->second = *collectives_.Bucket(kind, size.first, size.second, over);
      price::BucketCost cost = known->second;
      cost.length.value = cost.length.value * terms.slower / 100;
      if (last - first > 1) {
        cost.ahead.value = cost.ahead.value * terms.packing / 100;
        cost.behind.value = cost.behind.value * terms.packing / 100;
      }
      return cost;
    };
    return Done{};
  }

  const Graph& graph_;
  ScheduleConstraints constraints_;
  price::CollectiveCosts collectives_;
  // Cached, because equal layers have buckets of equal sizes.
  std::map<BucketKey, Prices> prices_;
  // In the order of their positions.
  std::map<BucketKey, Units> sequences_;
  // Launches that stay as they are.
  Units fixed_;
  std::vector<Nanos> times_;
  Nanos compute_;
  // Indexed by anchor.
  std::vector<Bytes> free_;
};

// Parameters to try, by effort.
std::vector<BucketTerms> TermsToTry(const BucketChooser& chooser, Effort effort) {
  if (effort == Effort::kFast) return {{MiB(1024), {INT64_MAX}, 115}};
  const bool best = effort == Effort::kBest;
  std::vector<int64_t> rooms_mib = {256, 4096};
  std::vector<int64_t> slower = {100, 115, 150};
  if (best) {
    rooms_mib = {64, 128, 256, 512, 1024, 8192};
    slower = {100, 105, 115, 130, 150, 200};
  }
  std::vector<Bytes> sizes = chooser.Largest();
  if (!best) sizes.resize(std::min<size_t>(sizes.size(), 2));
  std::vector<BucketTerms> terms;
  for (Bytes largest : sizes) {
    for (int64_t room : rooms_mib) {
      for (int64_t s : slower) {
        terms.push_back({MiB(room), largest, s});
        if (chooser.StandsStill() && (best || s != 100))
          terms.push_back({MiB(room), largest, s, 25});
      }
    }
  }
  return terms;
}

}  // namespace

Result<std::vector<Buckets>> BucketCandidates(const Module& module, const Graph& graph,
                                              const price::CostModel& model,
                                              const price::SimGraph& sim, Bytes cap,
                                              const OverlapOptions& options) {
  std::vector<Buckets> candidates;
  if (options.buckets.kind == BucketRule::Kind::kNone) return candidates;
  auto by_size = [&](Bytes size) {
    Graph copy = graph;
    PassContext context(module.mesh);
    Bucketer bucketer(copy, context, PayloadOrder::kParameter);
    candidates.push_back(BucketsBySize(copy, bucketer, size));
  };
  if (options.buckets.kind == BucketRule::Kind::kSize) {
    by_size(options.buckets.size);
    return candidates;
  }
  BucketChooser chooser(module, graph, model, sim, cap, options.freedom());
  for (const BucketTerms& terms : TermsToTry(chooser, options.effort)) {
    HEDDLE_TRY(Buckets buckets, chooser.Choose(terms));
    if (std::ranges::find(candidates, buckets) == candidates.end())
      candidates.push_back(std::move(buckets));
  }
  if (options.effort == Effort::kFast) return candidates;
  for (int64_t size : {2, 25, 100, 400}) by_size(MiB(size));
  return candidates;
}

Changed MergeBuckets(Graph& graph, PassContext& context, const Buckets& buckets) {
  Bucketer bucketer(graph, context, PayloadOrder::kParameter);
  for (const std::vector<NodeId>& bucket : buckets) bucketer.Add(bucket);
  return bucketer.Finish();
}

}  // namespace heddle::compile
