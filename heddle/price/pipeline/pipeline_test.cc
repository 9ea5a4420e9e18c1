#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "heddle/core/pipeline/run_in_order.h"
#include "heddle/price/pipeline/bounds.h"

namespace heddle::price {
namespace {

PipelineSchedule Make(std::string_view family, const PipelineShape& shape) {
  return *MakeSchedule(*FindScheduleFamily(family), shape);
}

// A rank's stages together take F, I and W; a stage takes its equal part of them.
PipelineCosts EqualCosts(const PipelineShape& shape, int64_t f, int64_t i, int64_t w,
                         int64_t hop = 0) {
  int64_t chunks = shape.stages / shape.ranks;
  StageCost cost{{f / chunks}, {i / chunks}, {w / chunks}};
  return {std::vector<StageCost>(static_cast<size_t>(shape.stages), cost), {hop}};
}

int64_t Step(std::string_view family, const PipelineShape& shape, const PipelineCosts& costs) {
  return FindPipelineTimes(Make(family, shape), costs).step.value;
}

// The unit is 1/60, so that it divides by all numbers of stages per rank.
constexpr int64_t kUnit = 60;

TEST(PipelineTimes, EqualCostsTakeTheTimesOfTheFormulas) {
  for (int64_t ranks : {2, 3, 4, 8}) {
    for (int64_t m = 2 * ranks; m <= 5 * ranks; m += ranks) {
      int64_t ideal = 3 * m * kUnit;
      int64_t hops = ranks - 1;
      auto idle = [&](std::string_view family, int64_t chunks) {
        PipelineShape shape{ranks, chunks * ranks, m};
        return Step(family, shape, EqualCosts(shape, kUnit, kUnit, kUnit)) - ideal;
      };
      EXPECT_EQ(idle("GPipe", 1), hops * 3 * kUnit);
      EXPECT_EQ(idle("1F1B", 1), hops * 3 * kUnit);
      EXPECT_EQ(idle("ZB-H1", 1), hops * kUnit);
      EXPECT_EQ(idle("ZBV", 2), hops * kUnit / 2);
      EXPECT_EQ(idle("DualPipeV", 2), hops * kUnit);
      for (int64_t chunks : {1, 2, 3, 4}) {
        EXPECT_EQ(idle("LoopedBFS", chunks), hops * 3 * kUnit / chunks);
        EXPECT_EQ(idle("Interleaved1F1B", chunks), hops * 3 * kUnit / chunks);
        EXPECT_EQ(idle("InterleavedZeroBubble", chunks), hops * kUnit / chunks);
      }
    }
  }
}

// Times of schedules with unequal costs, in hundredths, computed independently.
TEST(PipelineTimes, UnequalCosts) {
  struct Row {
    int64_t f, i, w, hop;
    int64_t one, interleaved, zero_1, zero_2, zbv;
  };
  constexpr Row kRows[] = {{100, 100, 100, 0, 3300, 2850, 2700, 2550, 2550},
                           {100, 140, 70, 0, 3410, 2945, 2990, 2735, 2690},
                           {100, 140, 70, 10, 3570, 3085, 3110, 2895, 2850},
                           {100, 200, 100, 10, 4560, 3940, 3920, 3660, 3660},
                           {100, 120, 50, 5, 3050, 2635, 2730, 2495, 2450}};
  for (const Row& row : kRows) {
    PipelineShape one{4, 4, 8};
    PipelineShape two{4, 8, 8};
    PipelineCosts whole = EqualCosts(one, row.f, row.i, row.w, row.hop);
    PipelineCosts half = EqualCosts(two, row.f, row.i, row.w, row.hop);
    EXPECT_EQ(Step("1F1B", one, whole), row.one);
    EXPECT_EQ(Step("Interleaved1F1B", two, half), row.interleaved);
    EXPECT_EQ(Step("InterleavedZeroBubble", one, whole), row.zero_1);
    EXPECT_EQ(Step("InterleavedZeroBubble", two, half), row.zero_2);
    EXPECT_EQ(Step("ZBV", two, half), row.zbv);
  }
}

std::vector<int64_t> InFlight(const PipelineTimes& times) {
  std::vector<int64_t> out;
  for (const RankTimes& rank : times.ranks) out.push_back(rank.most_in_flight);
  return out;
}

TEST(PipelineTimes, ActivationsInFlight) {
  auto in_flight = [](std::string_view family, const PipelineShape& shape) {
    return InFlight(FindPipelineTimes(Make(family, shape), EqualCosts(shape, 2, 2, 2)));
  };
  EXPECT_EQ(in_flight("GPipe", {4, 4, 8}), (std::vector<int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(in_flight("1F1B", {4, 4, 8}), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(in_flight("Interleaved1F1B", {4, 8, 8}), (std::vector<int64_t>{11, 9, 7, 5}));
  EXPECT_EQ(in_flight("ZB-H1", {4, 4, 8}), (std::vector<int64_t>{4, 4, 4, 4}));
  EXPECT_EQ(in_flight("ZBV", {4, 8, 8}), (std::vector<int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(in_flight("DualPipeV", {4, 8, 8}), (std::vector<int64_t>{9, 9, 9, 9}));
}

TEST(PipelineTimes, MessagesCrossRanksOnly) {
  auto messages = [](std::string_view family, const PipelineShape& shape) {
    return FindPipelineTimes(Make(family, shape), EqualCosts(shape, 2, 2, 2)).messages;
  };
  EXPECT_EQ(messages("1F1B", {4, 4, 8}), 2 * 3 * 8);
  EXPECT_EQ(messages("Interleaved1F1B", {4, 8, 8}), 2 * 7 * 8);
  // The V keeps its middle on one rank.
  EXPECT_EQ(messages("ZBV", {4, 8, 8}), 2 * 6 * 8);
}

PipelineBounds Bounds(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  return FindPipelineBounds(RanksOfStages(schedule), schedule.micro_batches, costs,
                            InFlight(FindPipelineTimes(schedule, costs)));
}

TEST(PipelineBounds, ProveSchedulesOptimal) {
  PipelineShape one{4, 4, 8};
  PipelineShape two{4, 8, 8};
  EXPECT_EQ(Bounds(Make("ZB-H1", one), EqualCosts(one, 2, 2, 2)).any.value, 54);
  EXPECT_EQ(Bounds(Make("ZBV", two), EqualCosts(two, 2, 2, 2)).any.value, 51);
  EXPECT_EQ(Bounds(Make("InterleavedZeroBubble", two), EqualCosts(two, 2, 2, 2)).any.value, 51);
  // Less memory than ZB-H1, and therefore a higher bound.
  PipelineBounds bounds = Bounds(Make("1F1B", one), EqualCosts(one, 2, 2, 2));
  EXPECT_EQ(bounds.any.value, 54);
  EXPECT_GE(bounds.within_memory, bounds.any);
}

struct Instance {
  std::vector<int32_t> rank_of_stage;
  int64_t ranks = 1;
  int64_t micro_batches = 1;
  PipelineCosts costs;
};

Instance RandomInstance(std::mt19937& random, int64_t most_stages, int64_t most_micro_batches) {
  auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  Instance out;
  int64_t stages = draw(1, most_stages);
  out.ranks = draw(1, std::min<int64_t>(stages, 4));
  out.micro_batches = draw(1, most_micro_batches);
  out.costs.hop = {draw(0, 3)};
  for (int64_t stage = 0; stage < stages; ++stage) {
    // Every rank has a stage.
    int64_t rank = stage < out.ranks ? stage : draw(0, out.ranks - 1);
    out.rank_of_stage.push_back(static_cast<int32_t>(rank));
    out.costs.stages.push_back({{draw(1, 9)}, {draw(0, 9)}, {draw(0, 9)}});
  }
  std::shuffle(out.rank_of_stage.begin(), out.rank_of_stage.end(), random);
  return out;
}

// Which actions of an instance have run; actions become ready as PyTorch's rules say.
class PartialSchedule {
 public:
  explicit PartialSchedule(const Instance& instance) : instance_(instance) {
    schedule_.stages = static_cast<int64_t>(instance.rank_of_stage.size());
    schedule_.micro_batches = instance.micro_batches;
    schedule_.ranks.resize(static_cast<size_t>(instance.ranks));
    done_.resize(static_cast<size_t>(4 * schedule_.stages * schedule_.micro_batches));
  }

  std::vector<PipelineAction> Ready(bool with_whole_backward) const {
    std::vector<PipelineAction> out;
    for (int32_t stage = 0; stage < schedule_.stages; ++stage)
      for (int32_t m = 0; m < schedule_.micro_batches; ++m)
        for (PipelineWork work : {PipelineWork::kForward, PipelineWork::kBackward,
                                  PipelineWork::kInputGradient, PipelineWork::kWeightGradient}) {
          if (work == PipelineWork::kBackward && !with_whole_backward) continue;
          PipelineAction action{stage, work, m, false};
          if (IsReady(action)) out.push_back(action);
        }
    return out;
  }
  void Run(const PipelineAction& action) {
    RanksActions(action).push_back(action);
    Set(action, 1);
  }
  void Undo(const PipelineAction& action) {
    RanksActions(action).pop_back();
    Set(action, 0);
  }
  bool complete() const {
    return std::ranges::all_of(done_, [](char done) { return done != 0; });
  }
  const PipelineSchedule& schedule() const { return schedule_; }

 private:
  std::vector<PipelineAction>& RanksActions(const PipelineAction& action) {
    int32_t rank = instance_.rank_of_stage[static_cast<size_t>(action.stage)];
    return schedule_.ranks[static_cast<size_t>(rank)];
  }
  size_t Index(int64_t stage, PipelineWork work, int64_t m) const {
    return static_cast<size_t>((stage * schedule_.micro_batches + m) * 4 +
                               static_cast<int64_t>(work));
  }
  void Set(const PipelineAction& action, char value) {
    auto set = [&](PipelineWork work) {
      done_[Index(action.stage, work, action.micro_batch)] = value;
    };
    set(action.work);
    // B is I and W; after I, there is no B.
    if (action.work == PipelineWork::kBackward) {
      set(PipelineWork::kInputGradient);
      set(PipelineWork::kWeightGradient);
    }
    if (action.work == PipelineWork::kInputGradient) set(PipelineWork::kBackward);
  }
  bool IsReady(const PipelineAction& action) const {
    if (done_[Index(action.stage, action.work, action.micro_batch)] != 0) return false;
    PipelineNeeds needs = NeedsOf(action, schedule_.stages);
    for (int i = 0; i < needs.count; ++i) {
      PipelineWork made = needs.needs[i].result == PipelineResult::kOutput
                              ? PipelineWork::kForward
                              : PipelineWork::kInputGradient;
      if (done_[Index(needs.needs[i].stage, made, action.micro_batch)] == 0) return false;
    }
    return true;
  }

  const Instance& instance_;
  PipelineSchedule schedule_;
  std::vector<char> done_;
};

TEST(PipelineBounds, AreBelowRandomSchedules) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 1000; ++trial) {
    Instance instance = RandomInstance(random, 8, 8);
    PartialSchedule partial(instance);
    for (std::vector<PipelineAction> ready = partial.Ready(true); !ready.empty();
         ready = partial.Ready(true))
      partial.Run(ready[random() % ready.size()]);
    ASSERT_TRUE(CheckPipelineSchedule(partial.schedule()).ok());
    PipelineTimes times = FindPipelineTimes(partial.schedule(), instance.costs);
    PipelineBounds bounds = FindPipelineBounds(instance.rank_of_stage, instance.micro_batches,
                                               instance.costs, InFlight(times));
    ASSERT_LE(bounds.any, bounds.within_memory) << trial;
    ASSERT_LE(bounds.within_memory, times.step) << trial;
  }
}

// Finds the shortest schedule that keeps at most `in_flight` activations on each rank, by trying
// every order. Micro-batches are interchangeable, so they enter stage 0 in ascending order.
class ExhaustiveSearch {
 public:
  ExhaustiveSearch(const Instance& instance, std::vector<int64_t> in_flight)
      : instance_(instance),
        limit_(std::move(in_flight)),
        partial_(instance),
        made_(partial_.schedule(), Nanos{}),
        free_(limit_.size()),
        left_(limit_.size()),
        in_flight_(limit_.size()) {
    for (size_t stage = 0; stage < instance.costs.stages.size(); ++stage) {
      const StageCost& cost = instance.costs.stages[stage];
      left_[static_cast<size_t>(instance.rank_of_stage[stage])] +=
          (cost.forward + cost.input_gradient + cost.weight_gradient) * instance.micro_batches;
    }
  }

  // None if it takes too many steps.
  std::optional<Nanos> Run() {
    Extend(Nanos{});
    if (tried_ > kMostTried) return std::nullopt;
    return best_;
  }

 private:
  static constexpr int64_t kMostTried = 200'000;

  size_t RankOf(const PipelineAction& action) const {
    return static_cast<size_t>(instance_.rank_of_stage[static_cast<size_t>(action.stage)]);
  }
  Nanos BeginOf(const PipelineAction& action) {
    Nanos begin = free_[RankOf(action)];
    PipelineNeeds needs = NeedsOf(action, partial_.schedule().stages);
    for (int i = 0; i < needs.count; ++i) {
      int64_t from = needs.needs[i].stage;
      Nanos arrival = made_.at(needs.needs[i], action.micro_batch);
      if (from != action.stage)
        arrival += HopAfter(std::min<int64_t>(from, action.stage), instance_.rank_of_stage,
                            instance_.costs);
      begin = std::max(begin, arrival);
    }
    return begin;
  }
  // Actions run in the order in which they begin; other orders are the same schedule.
  void Extend(Nanos last_begin) {
    if (++tried_ > kMostTried) return;
    for (size_t rank = 0; rank < free_.size(); ++rank)
      if (free_[rank] + left_[rank] >= best_) return;
    if (partial_.complete()) best_ = *std::ranges::max_element(free_);
    for (const PipelineAction& action : partial_.Ready(false)) {
      bool enters = action.work == PipelineWork::kForward && action.stage == 0;
      if (enters && action.micro_batch != entered_) continue;
      if (Nanos begin = BeginOf(action); begin >= last_begin) Try(action, begin, enters);
    }
  }
  void Try(const PipelineAction& action, Nanos begin, bool enters) {
    size_t rank = RankOf(action);
    int64_t delta = action.work == PipelineWork::kForward          ? 1
                    : action.work == PipelineWork::kWeightGradient ? -1
                                                                   : 0;
    if (in_flight_[rank] + delta > limit_[rank]) return;
    Nanos cost = CostOf(action, instance_.costs);
    Nanos freed = std::exchange(free_[rank], begin + cost);
    left_[rank] -= cost;
    in_flight_[rank] += delta;
    entered_ += enters ? 1 : 0;
    partial_.Run(action);
    // A result has one producer, so no earlier value is lost.
    if (std::optional<PipelineResult> result = ResultOf(action))
      made_.at({action.stage, *result}, action.micro_batch) = begin + cost;
    Extend(begin);
    partial_.Undo(action);
    entered_ -= enters ? 1 : 0;
    in_flight_[rank] -= delta;
    left_[rank] += cost;
    free_[rank] = freed;
  }

  const Instance& instance_;
  std::vector<int64_t> limit_;
  PartialSchedule partial_;
  PipelineResults<Nanos> made_;
  std::vector<Nanos> free_;
  std::vector<Nanos> left_;
  std::vector<int64_t> in_flight_;
  int32_t entered_ = 0;
  Nanos best_{INT64_MAX};
  int64_t tried_ = 0;
};

TEST(PipelineBounds, AreNeverAboveTheOptimum) {
  std::mt19937 random(11);
  int solved = 0;
  int equal = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Instance instance = RandomInstance(random, 3, 3);
    std::vector<int64_t> in_flight;
    for (int64_t rank = 0; rank < instance.ranks; ++rank) {
      int64_t chunks = std::ranges::count(instance.rank_of_stage, rank);
      // With fewer than its stages, a rank may be unable to run at all.
      in_flight.push_back(chunks + static_cast<int64_t>(random() % 3));
    }
    PipelineBounds bounds = FindPipelineBounds(instance.rank_of_stage, instance.micro_batches,
                                               instance.costs, in_flight);
    ExhaustiveSearch search(instance, in_flight);
    std::optional<Nanos> best = search.Run();
    if (!best) continue;
    ASSERT_NE(best->value, INT64_MAX) << trial;
    ASSERT_GE(*best, bounds.within_memory) << trial;
    ++solved;
    equal += *best == bounds.within_memory ? 1 : 0;
  }
  RecordProperty("solved", solved);
  RecordProperty("equal", equal);
  EXPECT_GT(solved, 150);
  EXPECT_GT(equal, solved / 2);
}

}  // namespace
}  // namespace heddle::price
