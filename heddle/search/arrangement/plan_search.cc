#include "heddle/search/arrangement/plan_search.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace heddle::search {
namespace {

constexpr std::string_view kPolicies[] = {"none", "min-cut", "selective", "full"};
constexpr std::string_view kReshard[] = {"default", "never"};
// Margin for the error of promises, in hundredths of time and of memory. It is a heuristic: promised
// peaks may be further off. With 1 the exhaustive test misses plans of the front.
constexpr int64_t kPromiseError = 3;

bool IsFaster(const StepOutcome& a, const StepOutcome& b) {
  return std::pair(a.step, a.peak) < std::pair(b.step, b.peak);
}

// The promise less the margin.
template <typename T>
T AtLeast(T promised) {
  return {promised.value / 100 * (100 - kPromiseError)};
}

}  // namespace

PlanSearch::PlanSearch(SearchedModel model, const price::CostModel& costs,
                       PlanSearchOptions options)
    : options_(std::move(options)),
      evaluator_(std::move(model), costs, options_.cluster, options_.global_batch) {}

std::vector<SearchPoint> PlanSearch::Space() const {
  std::vector<SearchPoint> out;
  const SearchedModel& model = evaluator_.model();
  for (const Arrangement& arrangement :
       Arrangements({.devices = options_.devices,
       .global_batch = options_.global_batch,
       .node_devices = evaluator_.costs().cluster().devices_per_node,
       .experts = model.experts,
       .one_pass = model.one_pass,
       .may_split = model.may_split})) {
    for (std::string_view policy : kPolicies) {
      for (std::string_view reshard : kReshard) {
        // Where nothing is kept in parts, nothing is gathered.
        if (arrangement.shard == 1 && reshard != "default") continue;
        out.push_back({arrangement, PlacedBy::kPreset, std::string(policy), std::string(reshard)});
      }
    }
  }
  return out;
}

void PlanSearch::Keep(TriedPoint tried) {
  tried_.push_back(std::move(tried));
  const TriedPoint& last = tried_.back();
  if (last.outcome.peak > options_.budget) return;
  if (!best_ || IsFaster(last.outcome, tried_[*best_].outcome)) best_ = tried_.size() - 1;
  for (Candidate& candidate : candidates_) Compare(last, candidate);
}

bool PlanSearch::Candidate::PromisesToFit(Bytes budget) const {
  return !promise || AtLeast(promise->peak) <= budget;
}

void PlanSearch::Compare(const TriedPoint& tried, Candidate& candidate) {
  if (candidate.fate != Fate::kOpen) return;
  Nanos step = tried.outcome.step;
  Bytes peak = tried.outcome.peak;
  if (step <= candidate.least_step() && peak <= candidate.least_peak()) {
    candidate.fate = Fate::kBeaten;
  } else if (candidate.promise && step <= AtLeast(candidate.promise->step) &&
             peak <= AtLeast(candidate.promise->peak)) {
    candidate.fate = Fate::kPromisedWorse;
  }
}

void PlanSearch::Report(std::string_view doing) const {
  if (!options_.progress) return;
  size_t done = 0;
  const TriedPoint* best = best_ ? &tried_[*best_] : nullptr;
  for (const Candidate& candidate : candidates_) done += candidate.fate == Fate::kOpen ? 0 : 1;
  options_.progress({done, candidates_.size(), doing, best});
}

// A plan that cannot be carried out is none.
void PlanSearch::Note(const SearchPoint& point, const Diagnostics& why) {
  std::string note = fmt::format("{} is left out: {}", Format(point), why[0].message);
  if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
}

// Bounds the compute of every candidate. Copies of the model do not change the work of forward and
// backward, and the optimizer does the least if nothing is kept twice.
void PlanSearch::Bound() {
  std::map<std::tuple<Arrangement, std::string>, std::optional<Nanos>> known;
  for (Candidate& candidate : candidates_) {
    SearchPoint plain{candidate.point.arrangement};
    plain.arrangement.shard *= plain.arrangement.replicate;
    plain.arrangement.replicate = 1;
    plain.policy = candidate.point.policy;
    auto [at, added] = known.try_emplace({plain.arrangement, plain.policy});
    if (added) {
      Report("bounds");
      Result<Nanos> compute = evaluator_.LeastCompute(plain);
      if (compute.ok()) at->second = *compute;
      if (!compute.ok()) Note(plain, compute.diagnostics());
    }
    if (!at->second) {
      candidate.fate = Fate::kDone;
      continue;
    }
    candidate.compute = *at->second;
  }
}

// Gets the promise of a candidate.
void PlanSearch::Promise(Candidate& candidate) {
  Result<StepOutcome> promised = evaluator_.Promise(candidate.point);
  if (!promised.ok()) {
    candidate.fate = Fate::kDone;
    return Note(candidate.point, promised.diagnostics());
  }
  candidate.promise = *promised;
  if (candidate.least_peak() > options_.budget) candidate.fate = Fate::kBeaten;
  for (const TriedPoint& tried : tried_) {
    if (tried.outcome.peak <= options_.budget) Compare(tried, candidate);
  }
}

// Takes the candidate one step further: from bounds to a promise, from a promise to a simulation.
void PlanSearch::Settle(Candidate& candidate) {
  if (!candidate.promise) {
    // All candidates of an arrangement: they share the lowered graphs of its small models.
    for (Candidate& other : candidates_) {
      bool shares = other.point.arrangement == candidate.point.arrangement;
      if (shares && other.fate == Fate::kOpen && !other.promise) Promise(other);
    }
    return;
  }
  candidate.fate = Fate::kDone;
  Result<TriedPoint> tried = evaluator_.Try(candidate.point);
  if (!tried.ok()) return Note(candidate.point, tried.diagnostics());
  Keep(*std::move(tried));
}

// The fastest candidate that may be part of the front, or null if none may. Those that promise not to fit come last, and only if
// nothing else fits.
PlanSearch::Candidate* PlanSearch::Next() {
  Candidate* next = nullptr;
  auto rank = [&](const Candidate& candidate) {
    return std::pair(!candidate.PromisesToFit(options_.budget), candidate.expected());
  };
  for (Candidate& candidate : candidates_) {
    if (candidate.fate != Fate::kOpen) continue;
    if (best_ && !candidate.PromisesToFit(options_.budget)) candidate.fate = Fate::kPromisedWorse;
    if (candidate.fate == Fate::kOpen && (next == nullptr || rank(candidate) < rank(*next)))
      next = &candidate;
  }
  return next;
}

Result<SearchResult> PlanSearch::Run() {
  for (SearchPoint& point : Space()) candidates_.push_back({std::move(point)});
  if (candidates_.empty())
    return Error(Diag::kMeshSize,
                 "{} sequences of a step do not divide over {} devices in any arrangement",
                 options_.global_batch, options_.devices);
  Bound();
  while (Candidate* next = Next()) {
    Report("plans");
    Settle(*next);
  }
  if (!best_) return NothingFits();
  if (options_.automatic) AddAutomatic();
  if (options_.overlap) AddOverlap();
  auto count = [&](Fate fate) {
    return static_cast<size_t>(std::ranges::count(candidates_, fate, &Candidate::fate));
  };
  return SearchResult{.front = Front(),
                      .points = candidates_.size() + others_,
                      .tried = tried_.size(),
                      .pruned = count(Fate::kBeaten) + count(Fate::kPromisedWorse),
                      .pruned_by_promise = count(Fate::kPromisedWorse),
                      .notes = std::move(notes_)};
}

// With what would: the plan of which small models promise the least, and what of its peak stays whatever is scheduled how.
Failure PlanSearch::NothingFits() {
  const Candidate* least = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (!candidate.promise) continue;
    if (least == nullptr || candidate.promise->peak < least->promise->peak) least = &candidate;
  }
  if (least == nullptr)
    return Error(Diag::kInfeasible, "no plan can be carried out; {}",
                 notes_.empty() ? "" : notes_[0]);
  HEDDLE_TRY(TriedPoint tried, evaluator_.Try(least->point));
  HEDDLE_TRY(price::StepSummary summary, evaluator_.Summary(least->point));
  return Error(Diag::kInfeasible,
               "no plan fits into {} of each of {} devices; {} takes {}, the least there is: "
               "parameters {}, optimizer state {}, gradients {}, kept for backward {}; the peak is "
               "at {}",
               Format(options_.budget), options_.devices, Format(tried.point),
               Format(tried.outcome.peak), Format(summary.param_bytes),
               Format(summary.optimizer_bytes), Format(summary.grad_bytes),
               Format(summary.activation_bytes), summary.peak_node);
}

// The solver's placements on the meshes that it may do something with: that of the best arrangement, all devices in a row, and nodes by
// devices.
void PlanSearch::AddAutomatic() {
  const SearchPoint best = tried_[*best_].point;
  if (best.arrangement.micro_batches > 1) return;
  int64_t node = std::min<int64_t>(evaluator_.costs().cluster().devices_per_node, options_.devices);
  std::set<Arrangement> meshes{{.shard = options_.devices}, best.arrangement};
  if (options_.devices % node == 0 && options_.devices > node)
    meshes.insert({.shard = options_.devices / node, .tensor = node});
  for (Arrangement arrangement : meshes) {
    // Who has which experts is for presets to say.
    if (arrangement.experts > 1) continue;
    Report("solver");
    ++others_;
    SearchPoint point = best;
    point.arrangement = arrangement;
    point.placed = PlacedBy::kAuto;
    auto place = [&]() -> Result<TriedPoint> {
      HEDDLE_RETURN_IF_ERROR(evaluator_.Place(point, options_.solver));
      return evaluator_.Try(point);
    };
    Result<TriedPoint> tried = place();
    // Too many choices: that mesh is left to presets.
    if (!tried.ok()) {
      Note(point, tried.diagnostics());
      continue;
    }
    Keep(*std::move(tried));
  }
}

// Launches of the fastest, where a simulation is shortest: that takes longer than to try a plan, so others go without.
void PlanSearch::AddOverlap() {
  Report("schedule");
  ++others_;
  SearchPoint point = tried_[*best_].point;
  point.scheduled = ScheduledBy::kOverlap;
  Result<TriedPoint> tried = evaluator_.Try(point);
  if (!tried.ok()) return Note(point, tried.diagnostics());
  Keep(*std::move(tried));
}

std::vector<TriedPoint> PlanSearch::Front() const {
  std::vector<TriedPoint> sorted;
  for (const TriedPoint& tried : tried_) {
    if (tried.outcome.peak <= options_.budget) sorted.push_back(tried);
  }
  std::ranges::stable_sort(sorted, IsFaster, &TriedPoint::outcome);
  std::vector<TriedPoint> front;
  for (TriedPoint& tried : sorted) {
    if (front.empty() || tried.outcome.peak < front.back().outcome.peak)
      front.push_back(std::move(tried));
  }
  return front;
}

}  // namespace heddle::search
