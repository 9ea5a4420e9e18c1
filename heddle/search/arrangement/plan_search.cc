#include "heddle/search/arrangement/plan_search.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "heddle/core/base/host.h"

namespace heddle::search {
namespace {

constexpr std::string_view kReshard[] = {"default", "never"};
// Most pipelines that are simulated.
constexpr size_t kMostPipelines = 4;
// Most threads. Each needs memory for several copies of a graph.
constexpr size_t kMostThreads = 4;

bool IsFaster(const StepOutcome& a, const StepOutcome& b) {
  return std::pair(a.step, a.peak) < std::pair(b.step, b.peak);
}

// A host that stops long computations can only do so in its own thread.
size_t ThreadCount() {
  if (CurrentHost().poll != nullptr) return 1;
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
}

// Runs work in another thread, or without threads when its result is needed.
template <typename Work>
auto InThread(Work work) {
  return std::async(ThreadCount() > 1 ? std::launch::async : std::launch::deferred,
                    std::move(work));
}

}  // namespace

PlanSearch::PlanSearch(SearchedModel model, const price::CostModel& costs,
                       PlanSearchOptions options)
    : options_(std::move(options)),
      evaluator_(std::move(model), costs, options_.cluster, options_.global_batch) {}

ArrangementSpace PlanSearch::Arrangeable() const {
  const SearchedModel& model = evaluator_.model();
  return {.devices = options_.devices,
          .global_batch = options_.global_batch,
          .node_devices = evaluator_.costs().cluster().devices_per_node,
          .experts = model.experts,
          .one_pass = model.one_pass,
          .supports = model.supports};
}

std::vector<SearchPoint> PlanSearch::Space() const {
  std::vector<SearchPoint> out;
  for (const Arrangement& arrangement : Arrangements(Arrangeable())) {
    for (std::string_view policy : kCheckpointPolicies) {
      for (std::string_view reshard : kReshard) {
        // Without sharded parameters, there is nothing to gather.
        if (!arrangement.shards_params() && reshard != "default") continue;
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
  size_t open = static_cast<size_t>(std::ranges::count(candidates_, Fate::kOpen, &Candidate::fate));
  Report(doing, candidates_.size() - open, candidates_.size());
}

void PlanSearch::Report(std::string_view doing, size_t done, size_t all) const {
  if (options_.progress) options_.progress({done, all, doing, best_ ? &tried_[*best_] : nullptr});
}

// Records a plan that does not compile.
void PlanSearch::Note(const SearchPoint& point, const Diagnostics& why) {
  std::string note = fmt::format("{} is left out: {}", Format(point), why[0].message);
  if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
}

// Points with one replica share their bounds, and those of one arrangement share lowered graphs.
void PlanSearch::Bound() {
  using Bounds = std::map<SearchPoint, Result<StepBounds>>;
  std::map<Arrangement, std::set<SearchPoint>> points;
  size_t all = 0;
  for (const Candidate& candidate : candidates_) {
    SearchPoint shared = WithOneReplica(candidate.point);
    all += points[shared.arrangement].insert(shared).second ? 1 : 0;
  }
  auto bound_all = [this](const std::set<SearchPoint>& some) {
    Bounds out;
    for (const SearchPoint& point : some) out.emplace(point, evaluator_.LeastBounds(point));
    return out;
  };
  Bounds bounds;
  std::deque<std::future<Bounds>> running;
  auto finish_first = [&] {
    bounds.merge(running.front().get());
    running.pop_front();
    Report("bounds", bounds.size(), all);
  };
  for (const auto& [arrangement, some] : points) {
    // Captures in this thread, because the host may not allow it in others. LeastBounds repeats an
    // error.
    (void)evaluator_.Capture(*some.begin(), PointEvaluator::Purpose::kBounds);
    running.push_back(InThread([&bound_all, &some] { return bound_all(some); }));
    if (running.size() == ThreadCount()) finish_first();
  }
  while (!running.empty()) finish_first();
  for (Candidate& candidate : candidates_)
    SetBounds(candidate, bounds.at(WithOneReplica(candidate.point)));
}

void PlanSearch::SetBounds(Candidate& candidate, const Result<StepBounds>& least) {
  if (!least.ok()) {
    candidate.fate = Fate::kDone;
    return Note(WithOneReplica(candidate.point), least.diagnostics());
  }
  candidate.least = *least;
  if (candidate.least_peak() > options_.budget) candidate.fate = Fate::kBeaten;
}

void PlanSearch::SetPromise(Candidate& candidate, Result<StepOutcome> promised) {
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

std::vector<SearchPoint> PlanSearch::Unpromised(const Arrangement& arrangement) const {
  std::vector<SearchPoint> out;
  for (const Candidate& other : candidates_) {
    if (other.fate == Fate::kOpen && !other.promise && other.point.arrangement == arrangement)
      out.push_back(other.point);
  }
  return out;
}

PlanSearch::Promises PlanSearch::PromiseAll(const std::vector<SearchPoint>& points) {
  Promises out;
  for (const SearchPoint& point : points) out.emplace(point, evaluator_.Promise(point));
  return out;
}

// Advances the candidate one step: from bounds to a promise, or from a promise to a simulation.
void PlanSearch::Settle(Candidate& candidate) {
  WorkAhead(candidate);
  if (!candidate.promise) {
    const Arrangement arrangement = candidate.point.arrangement;
    auto ahead = promised_ahead_.extract(arrangement);
    Promises promises = ahead.empty() ? PromiseAll(Unpromised(arrangement)) : ahead.mapped().get();
    for (Candidate& other : candidates_) {
      if (other.fate != Fate::kOpen || other.promise) continue;
      auto promised = promises.find(other.point);
      if (promised != promises.end()) SetPromise(other, std::move(promised->second));
    }
    return;
  }
  candidate.fate = Fate::kDone;
  auto ahead = tried_ahead_.extract(candidate.point);
  Result<TriedPoint> tried = ahead.empty() ? evaluator_.Try(candidate.point) : ahead.mapped().get();
  if (!tried.ok()) return Note(candidate.point, tried.diagnostics());
  Keep(*std::move(tried));
}

void PlanSearch::WorkAhead(const Candidate& current) {
  const size_t threads = ThreadCount();
  const Arrangement& arrangement = current.point.arrangement;
  auto is_busy = [](const auto& future) {
    return future.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  };
  // Threads that do not work for the current candidate.
  size_t busy = 0;
  for (const auto& [point, future] : tried_ahead_)
    busy += point != current.point && is_busy(future) ? 1 : 0;
  for (const auto& [key, future] : promised_ahead_)
    busy += (current.promise || key != arrangement) && is_busy(future) ? 1 : 0;
  for (; busy + 1 < threads; ++busy) {
    const Candidate* next = nullptr;
    for (const Candidate& candidate : candidates_) {
      if (candidate.fate != Fate::kOpen || !candidate.PromisesToFit(options_.budget)) continue;
      const SearchPoint& point = candidate.point;
      bool has_begun = candidate.promise
                           ? &candidate == &current || tried_ahead_.contains(point)
                           : promised_ahead_.contains(point.arrangement) ||
                                 (!current.promise && point.arrangement == arrangement);
      if (!has_begun && (next == nullptr || candidate.expected() < next->expected()))
        next = &candidate;
    }
    if (next == nullptr) return;
    // Captures in this thread, because the host may not allow it in others.
    using enum PointEvaluator::Purpose;
    if (!evaluator_.Capture(next->point, next->promise ? kTry : kPromise).ok()) return;
    const SearchPoint& point = next->point;
    if (next->promise) {
      tried_ahead_[point] = InThread([this, point] { return evaluator_.Try(point); });
    } else {
      promised_ahead_[point.arrangement] =
          InThread([this, points = Unpromised(point.arrangement)] { return PromiseAll(points); });
    }
  }
}

// Returns the fastest candidate that may be part of the front, or null. Candidates that promise not
// to fit come last, and only if nothing else fits.
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
  Bound();
  while (Candidate* next = Next()) {
    Report("plans");
    Settle(*next);
  }
  if (best_ && options_.automatic) AddAutomatic();
  if (best_ && options_.overlap) AddOverlap();
  std::optional<MethodChoice> methods;
  if (best_) methods = CompareMethods();
  if (options_.pipelines && !evaluator_.model().one_pass) AddPipelines();
  if (!best_) return NothingFits();
  auto count = [&](Fate fate) {
    return static_cast<size_t>(std::ranges::count(candidates_, fate, &Candidate::fate));
  };
  return SearchResult{.front = Front(),
                      .methods = std::move(methods),
                      .pipeline = std::move(pipeline_),
                      .points = candidates_.size() + others_,
                      .tried = tried_.size(),
                      .pruned = count(Fate::kBeaten) + count(Fate::kPromisedWorse) + others_pruned_,
                      .pruned_by_promise = count(Fate::kPromisedWorse) + others_pruned_,
                      .notes = std::move(notes_)};
}

// Names the plan with the least promised peak and the parts of its peak.
Failure PlanSearch::NothingFits() {
  if (candidates_.empty() && others_ == 0)
    return Error(Diag::kMeshSize,
                 "{} sequences of a step do not divide over {} devices in any arrangement",
                 options_.global_batch, options_.devices);
  std::ranges::stable_sort(candidates_, {}, &Candidate::least_peak);
  const Candidate* least = nullptr;
  for (Candidate& candidate : candidates_) {
    if (least != nullptr && least->promise->peak <= candidate.least_peak()) break;
    if (!candidate.promise) SetPromise(candidate, evaluator_.Promise(candidate.point));
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

// Tries the solver's placements on three meshes: that of the best arrangement, all devices on one
// axis, and nodes by devices.
void PlanSearch::AddAutomatic() {
  const SearchPoint best = tried_[*best_].point;
  if (best.arrangement.micro_batches > 1) return;
  int64_t node = std::min<int64_t>(evaluator_.costs().cluster().devices_per_node, options_.devices);
  std::set<Arrangement> meshes{{.shard = options_.devices}, best.arrangement};
  if (options_.devices % node == 0 && options_.devices > node)
    meshes.insert({.shard = options_.devices / node, .tensor = node});
  std::vector<std::pair<SearchPoint, std::future<Result<TriedPoint>>>> placed;
  for (Arrangement arrangement : meshes) {
    // Presets decide which ranks have which experts.
    if (arrangement.experts > 1) continue;
    Report("solver");
    ++others_;
    SearchPoint point = best;
    point.arrangement = arrangement;
    point.placed = PlacedBy::kAuto;
    // The solver splits positions and heads of any axis itself, with consecutive positions.
    point.arrangement.context_heads = arrangement.context > 1;
    if (Status captured = evaluator_.Capture(point, PointEvaluator::Purpose::kTry);
        !captured.ok()) {
      Note(point, captured.diagnostics());
      continue;
    }
    auto place = [this, point]() -> Result<TriedPoint> {
      HEDDLE_RETURN_IF_ERROR(evaluator_.Place(point, options_.solver));
      return evaluator_.Try(point);
    };
    placed.emplace_back(point, InThread(std::move(place)));
  }
  for (auto& [point, result] : placed) {
    Result<TriedPoint> tried = result.get();
    // There are too many choices on this mesh, so only presets are tried.
    if (!tried.ok()) {
      Note(point, tried.diagnostics());
      continue;
    }
    Keep(*std::move(tried));
  }
}

// Schedules the launches of the fastest plan by simulation. This takes longer than trying a plan,
// so other plans keep their schedule.
void PlanSearch::AddOverlap() {
  Report("schedule");
  ++others_;
  SearchPoint point = tried_[*best_].point;
  point.scheduled = ScheduledBy::kOverlap;
  Result<TriedPoint> tried = evaluator_.Try(point);
  if (!tried.ok()) return Note(point, tried.diagnostics());
  Keep(*std::move(tried));
}

bool PlanSearch::IsBeaten(const PredictedPipeline& pipeline) const {
  return std::ranges::any_of(tried_, [&](const TriedPoint& tried) {
    return tried.outcome.peak <= options_.budget && tried.outcome.step <= AtLeast(pipeline.step) &&
           tried.outcome.peak <= pipeline.least_peak();
  });
}

void PlanSearch::AddPipelines() {
  Report("pipelines");
  PipelineSearch search(evaluator_, options_.budget);
  std::vector<PredictedPipeline> found = search.Run(Arrangeable());
  others_ += search.points();
  others_pruned_ += search.points();
  notes_.insert(notes_.end(), search.notes().begin(), search.notes().end());
  // Chosen before any is simulated, so that the number of threads does not matter.
  std::vector<SearchPoint> chosen;
  for (const PredictedPipeline& one : found) {
    const bool simulates = chosen.size() < kMostPipelines && !IsBeaten(one);
    if (simulates) chosen.push_back(one.point);
    const bool fits = one.peak <= options_.budget;
    if (!simulates && !pipeline_ && fits) pipeline_ = {one, /*simulated=*/false};
  }
  std::deque<std::future<Result<TriedPoint>>> running;
  for (size_t i = 0, next = 0; i < chosen.size(); ++i) {
    for (; next < chosen.size() && running.size() < ThreadCount(); ++next) {
      // Captures in this thread, because the host may not allow it in others. Try repeats an error.
      (void)evaluator_.Capture(chosen[next], PointEvaluator::Purpose::kTry);
      running.push_back(InThread([this, point = chosen[next]] { return evaluator_.Try(point); }));
    }
    Report("pipelines");
    Result<TriedPoint> tried = running.front().get();
    running.pop_front();
    KeepPipeline(chosen[i], std::move(tried));
  }
}

void PlanSearch::KeepPipeline(const SearchPoint& point, Result<TriedPoint> tried) {
  if (!tried.ok()) return Note(point, tried.diagnostics());
  --others_pruned_;
  const StepOutcome& outcome = tried->outcome;
  const bool best = !pipeline_ || !pipeline_->simulated || outcome.step < pipeline_->figures.step;
  if (best && outcome.peak <= options_.budget)
    pipeline_ = {{point, outcome.step, outcome.bounds.step, outcome.peak}, /*simulated=*/true};
  Keep(*std::move(tried));
}

std::optional<MethodChoice> PlanSearch::CompareMethods() {
  if (tried_[*best_].point.arrangement.context == 1) return std::nullopt;
  const TriedPoint* fastest = nullptr;
  for (const TriedPoint& tried : tried_) {
    if (tried.point.arrangement.context == 1 || tried.point.placed == PlacedBy::kAuto) continue;
    if (tried.outcome.peak > options_.budget) continue;
    if (fastest == nullptr || IsFaster(tried.outcome, fastest->outcome)) fastest = &tried;
  }
  if (fastest == nullptr) return std::nullopt;
  const TriedPoint chosen = *fastest;
  SearchPoint point = chosen.point;
  point.arrangement.context_heads = !point.arrangement.context_heads;
  if (!evaluator_.model().supports(point.arrangement)) return std::nullopt;
  auto known = std::ranges::find(tried_, point, &TriedPoint::point);
  if (known != tried_.end()) return MethodChoice{chosen, *known};
  Report("methods");
  Result<TriedPoint> other = evaluator_.Try(point);
  auto candidate = std::ranges::find(candidates_, point, &Candidate::point);
  if (candidate == candidates_.end())
    ++others_;
  else
    candidate->fate = Fate::kDone;
  if (!other.ok()) {
    Note(point, other.diagnostics());
    return std::nullopt;
  }
  Keep(*other);
  MethodChoice methods{chosen, *std::move(other)};
  // With `overlap`, the order of the methods may change.
  const StepOutcome& outcome = methods.other.outcome;
  if (outcome.peak <= options_.budget && IsFaster(outcome, chosen.outcome))
    std::swap(methods.chosen, methods.other);
  return methods;
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
