#include "heddle/search/memory/memory_search.h"

#include <algorithm>
#include <map>

#include "heddle/core/base/text.h"

namespace heddle::search {
namespace {

constexpr std::string_view kPolicies[] = {"none", "min-cut", "selective", "full"};
// Number of corners of the recomputation curve to try.
constexpr size_t kCorners = 8;
// Shares of forward's compute time that the copy engine may use.
constexpr double kShares[] = {0.45, 0.9};

bool IsFaster(const MemoryChoice& a, const MemoryChoice& b) {
  if (a.step != b.step) return a.step < b.step;
  return a.peak != b.peak ? a.peak < b.peak : a.policy < b.policy;
}

}  // namespace

Result<std::unique_ptr<MemorySearch>> MemorySearch::Make(const Module& module,
                                                         const compile::Pipeline& after,
                                                         const price::CostModel& model,
                                                         bool offloads) {
  price::CostModel additive = model.Additive();
  HEDDLE_TRY(RunTimes times, FindRunTimes(module, additive));
  return std::make_unique<MemorySearch>(module, after, std::move(additive), std::move(times),
                                        offloads);
}

MemorySearch::MemorySearch(const Module& module, const compile::Pipeline& after,
                           price::CostModel additive, RunTimes times, bool offloads)
    : costs_(std::move(additive)),
      trials_(module, after, costs_),
      weights_(module.graphs[0]),
      blocks_(module.graphs[0]),
      times_(std::move(times)),
      cut_(module.graphs[0], weights_, times_.all),
      computing_(module.graphs[0], weights_, times_.compute),
      variants_(module.graphs[0], weights_, blocks_),
      offloads_(offloads) {}

Status MemorySearch::TryLevel(const Level& level) {
  HEDDLE_TRY(const MemoryChoice* choice, trials_.Try(level.name, level.marks));
  // The same marks under another name.
  if (choice->policy == level.name) levels_.push_back({level.name, choice});
  return Done{};
}

Status MemorySearch::TryLevels() {
  if (!levels_.empty()) return Done{};
  for (std::string_view policy : kPolicies) {
    HEDDLE_TRY(Marks marks, trials_.MarksOf(policy));
    HEDDLE_RETURN_IF_ERROR(TryLevel({std::string(policy), std::move(marks)}));
  }
  computing_.Corners(kCorners);
  std::vector<Corner> corners = cut_.Corners(kCorners);
  for (size_t i = 0; i < corners.size(); ++i)
    HEDDLE_RETURN_IF_ERROR(TryLevel({fmt::format("cut {}", i), std::move(corners[i].marks)}));
  return TryVariants();
}

// Varies only levels on the hull: variants of slow and large levels stay slow and large.
Status MemorySearch::TryVariants() {
  FindHull();
  std::vector<Point> bases = hull_;
  for (const Point& base : bases) {
    Level level{base.name, base.choice->marks};
    for (const Level& one : {variants_.WithWeights(level), variants_.GatheredAgain(level)})
      HEDDLE_RETURN_IF_ERROR(TryLevel(one));
    if (!offloads_) continue;
    for (double share : kShares)
      HEDDLE_RETURN_IF_ERROR(
          TryLevel(variants_.Offloaded(level, trials_.model(), times_.once, share)));
  }
  FindHull();
  HEDDLE_TRY(std::vector<Point> mixed, TryParts());
  levels_.insert(levels_.end(), mixed.begin(), mixed.end());
  FindHull();
  return Done{};
}

// A mixture of the two smallest levels may need less than both: tries one, two and three quarters.
// If the fastest level is also the smallest, mixes the levels that keep most and least: recomputing
// everything together can need as much memory as keeping it.
Result<std::vector<MemorySearch::Point>> MemorySearch::TryParts() {
  constexpr size_t kParts = 4;
  auto kept = [](const Point& point) { return point.choice->kept; };
  bool one = hull_.size() == 1;
  Point fast = one ? *std::ranges::max_element(levels_, {}, kept) : hull_[hull_.size() - 2];
  Point small = one ? *std::ranges::min_element(levels_, {}, kept) : hull_.back();
  Mix mix{fast, small, BlocksOf(fast.choice->marks, small.choice->marks)};
  std::vector<Point> points;
  for (size_t part = 1; part < kParts && !mix.groups.empty(); ++part) {
    HEDDLE_TRY(Point point, TryMix(mix, mix.groups.size() * part / kParts));
    points.push_back(std::move(point));
  }
  return points;
}

void MemorySearch::FindHull() {
  std::vector<Point> points = levels_;
  std::ranges::stable_sort(
      points, [](const Point& a, const Point& b) { return IsFaster(*a.choice, *b.choice); });
  hull_.clear();
  for (const Point& point : points) {
    if (!hull_.empty() && point.choice->peak >= hull_.back().choice->peak) continue;
    // Drops a corner above the line between its neighbors.
    while (hull_.size() >= 2) {
      const MemoryChoice& a = *hull_[hull_.size() - 2].choice;
      const MemoryChoice& b = *hull_.back().choice;
      auto slope = [](const MemoryChoice& from, const MemoryChoice& to) {
        return static_cast<double>((to.step - from.step).value) /
               static_cast<double>((from.peak - to.peak).value);
      };
      if (slope(a, b) < slope(a, *point.choice)) break;
      hull_.pop_back();
    }
    hull_.push_back(point);
  }
}

// Values outside blocks come first. A model of one block is split by values.
std::vector<MemorySearch::Group> MemorySearch::BlocksOf(const Marks& a, const Marks& b) const {
  std::map<int64_t, Group> groups;
  const Graph& graph = trials_.graph();
  for (ValueId v : graph.values()) {
    if (a[v.index()] == b[v.index()]) continue;
    bool by_block = blocks_.count() > 1;
    groups[by_block ? blocks_.of(graph[v].producer) : static_cast<int64_t>(v.index())].push_back(v);
  }
  std::vector<Group> list;
  for (auto& [block, values] : groups) list.push_back(std::move(values));
  return list;
}

Result<MemorySearch::Point> MemorySearch::TryMix(const Mix& mix, size_t n) {
  Marks marks = mix.fast.choice->marks;
  for (size_t i = 0; i < n; ++i) {
    for (ValueId v : mix.groups[i]) marks[v.index()] = mix.small.choice->marks[v.index()];
  }
  std::string name =
      mix.of_block
          ? fmt::format("{}; {} of {} values more", mix.fast.name, n, mix.groups.size())
          : fmt::format("{} for {} of {}, {}", mix.small.name, n, mix.groups.size(), mix.fast.name);
  HEDDLE_TRY(const MemoryChoice* choice, trials_.Try(name, marks));
  return Point{choice->policy, choice};
}

// Narrows a pair of which the first does not fit and the second does.
Status MemorySearch::Narrow(const Mix& mix, Bytes budget, Point& fast, Point& small) {
  size_t too_few = 0;
  size_t enough = mix.groups.size();
  while (enough - too_few > 1) {
    size_t middle = too_few + (enough - too_few) / 2;
    HEDDLE_TRY(Point point, TryMix(mix, middle));
    const MemoryChoice& choice = *point.choice;
    bool lies_between = choice.step >= fast.choice->step && choice.step <= small.choice->step &&
                        choice.peak <= fast.choice->peak && choice.peak >= small.choice->peak;
    // A trial outside the range is ignored, because it tells nothing about the budget.
    bool fits = lies_between && choice.peak <= budget;
    (fits ? enough : too_few) = middle;
    if (lies_between) (fits ? small : fast) = std::move(point);
  }
  return Done{};
}

// By blocks, and then by the values of the last block.
Result<MemoryChoice> MemorySearch::Between(Point fast, Point small, Bytes budget) {
  Mix mix{fast, small, BlocksOf(fast.choice->marks, small.choice->marks)};
  HEDDLE_RETURN_IF_ERROR(Narrow(mix, budget, fast, small));
  std::vector<Group> left = BlocksOf(fast.choice->marks, small.choice->marks);
  if (left.size() == 1 && mix.groups.size() > 1) {
    Mix values{fast, small, {}, true};
    for (ValueId v : left[0]) values.groups.push_back({v});
    HEDDLE_RETURN_IF_ERROR(Narrow(values, budget, fast, small));
  }
  return *small.choice;
}

// At the end of forward, all kept values are in memory, except what fits through the host link
// within the step. Computing the rest again is a lower bound of the time.
Nanos MemorySearch::BoundFor(Bytes budget, Nanos step) const {
  const std::optional<price::HostLink>& host = trials_.model().cluster().host;
  double moved = host ? host->rate.per_nano * static_cast<double>(step.value) : 0;
  Bytes there = budget - trials_.inputs() + Bytes{static_cast<int64_t>(moved)};
  return std::min(step, trials_.compute() + computing_.Bound(there));
}

Result<MemoryChoice> MemorySearch::Infeasible(Bytes budget) const {
  const MemoryChoice& least = trials_.Smallest();
  HEDDLE_TRY(std::string held, trials_.HoldsPeak(least));
  return Error(Diag::kInfeasible,
               "no choice of what to keep brings the step down to {} of each rank; the least is "
               "{}, with `{}`, which holds {}",
               Format(budget), Format(least.peak), least.policy, held);
}

Result<MemoryChoice> MemorySearch::FindWithin(Bytes budget) {
  HEDDLE_RETURN_IF_ERROR(TryLevels());
  const MemoryChoice* best = nullptr;
  for (const Point& level : levels_) {
    if (level.choice->peak > budget) continue;
    if (best == nullptr || IsFaster(*level.choice, *best)) best = level.choice;
  }
  if (best == nullptr) return Infeasible(budget);
  MemoryChoice chosen = *best;
  for (size_t i = 0; i + 1 < hull_.size(); ++i) {
    if (hull_[i].choice->peak <= budget || hull_[i + 1].choice->peak > budget) continue;
    HEDDLE_TRY(MemoryChoice mixed, Between(hull_[i], hull_[i + 1], budget));
    if (IsFaster(mixed, chosen)) chosen = std::move(mixed);
  }
  chosen.bound = BoundFor(budget, chosen.step);
  return chosen;
}

Result<std::vector<MemoryChoice>> MemorySearch::Sweep() {
  constexpr int64_t kBudgets = 16;
  HEDDLE_RETURN_IF_ERROR(TryLevels());
  std::vector<MemoryChoice> choices;
  for (const Point& level : levels_) choices.push_back(*level.choice);
  Bytes most = hull_.front().choice->peak;
  Bytes least = hull_.back().choice->peak;
  for (int64_t i = 1; i < kBudgets; ++i) {
    HEDDLE_TRY(MemoryChoice choice, FindWithin(least + Bytes{(most - least).value / kBudgets * i}));
    choices.push_back(std::move(choice));
  }
  std::ranges::stable_sort(choices, IsFaster);
  std::vector<MemoryChoice> curve;
  for (MemoryChoice& choice : choices) {
    if (curve.empty() || choice.peak < curve.back().peak) curve.push_back(std::move(choice));
  }
  return curve;
}

}  // namespace heddle::search
