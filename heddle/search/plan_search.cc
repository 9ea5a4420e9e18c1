#include "heddle/search/plan_search.h"

#include <algorithm>
#include <set>

#include "heddle/passes/passes.h"

namespace heddle {
namespace {

constexpr std::string_view kPolicies[] = {"none", "min-cut", "selective", "full"};
constexpr std::string_view kReshard[] = {"default", "never"};
// Points of the front beyond the fastest, that small models promise.
constexpr size_t kMostFront = 6;

// In the order in which points are tried: what is thought to fit first, then by time.
bool ComesBefore(const PointOutcome& a, const PointOutcome& b, Bytes budget) {
  bool fits_a = a.peak <= budget;
  bool fits_b = b.peak <= budget;
  if (fits_a != fits_b) return fits_a;
  return std::pair(a.step, a.peak) < std::pair(b.step, b.peak);
}

std::string Schedule(std::string_view policy, std::string_view reshard, bool schedules) {
  std::string text = "clean";
  if (policy != "none") text += ", " + CheckpointPipeline(policy);
  if (!schedules) return text;
  return fmt::format(
      "{}, clean, reshard-after-forward{{policy={}}}, dce, bucket-by-unit, "
      "separate-communicators, prefetch",
      text, reshard);
}

// From what two sizes come to, what `n` comes to, where every unit adds the same.
template <typename T>
T Line(T small, T large, int64_t more) {
  return large + (large - small) * more;
}

}  // namespace

// A point on its way: its bounds, and what it is thought to come to.
struct PlanSearch::Candidate {
  SearchPoint point;
  // No schedule goes below.
  Nanos compute;
  // By small models.
  std::optional<PointOutcome> thought;
  bool is_done = false;

  // `best` may be null.
  bool IsBeaten(const PointOutcome* best, Bytes budget) const {
    if (thought && thought->floor > budget) return true;
    return best != nullptr &&
           (best->step <= compute || (thought && best->step <= thought->compute));
  }
};

std::string Format(const SearchPoint& point) {
  std::string out = Format(point.arrangement);
  out += point.placed == PlacedBy::kAuto ? ", auto" : "";
  if (point.policy != "none") out += ", checkpoint " + point.policy;
  if (point.reshard != "default") out += ", reshard " + point.reshard;
  return out;
}

PlanSearch::PlanSearch(SearchedModel model, const CostModel& costs, PlanSearchOptions options)
    : model_(std::move(model)), costs_(costs), options_(std::move(options)) {}

std::vector<SearchPoint> PlanSearch::Space() const {
  std::vector<SearchPoint> out;
  for (const Arrangement& arrangement :
       Arrangements(options_.devices, options_.global_batch, costs_.cluster().devices_per_node,
                    model_.may_split)) {
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

// --- What a point comes to

StepRequest PlanSearch::RequestFor(const SearchPoint& point, int64_t layers) const {
  const Arrangement& arrangement = point.arrangement;
  return {.sequences = options_.global_batch / arrangement.micro_batches,
          .norms_apart = arrangement.tensor > 1 && point.placed == PlacedBy::kPreset,
          .accumulates = arrangement.micro_batches > 1,
          .updates = true,
          .layers = layers};
}

Result<const Module*> PlanSearch::Captured(const StepRequest& request) {
  auto known = captured_.find(request);
  if (known == captured_.end()) {
    HEDDLE_TRY(Module module, model_.capture(request));
    known = captured_.emplace(request, std::move(module)).first;
  }
  return &known->second;
}

Result<Plan> PlanSearch::PlanFor(const SearchPoint& point, int64_t layers) {
  if (point.placed == PlacedBy::kAuto) return found_.at(point.arrangement);
  HEDDLE_TRY(const Module* module, Captured(RequestFor(point, layers)));
  return model_.preset(module->graphs[0], point.arrangement);
}

Result<const Module*> PlanSearch::Lowered(const SearchPoint& point, const StepRequest& request) {
  std::tuple key(point.arrangement, point.placed, request);
  auto known = lowered_.find(key);
  if (known != lowered_.end()) return &known->second;
  HEDDLE_TRY(const Module* captured, Captured(request));
  HEDDLE_TRY(Plan plan, PlanFor(point, request.layers));
  Module module = *captured;
  HEDDLE_RETURN_IF_ERROR(Compile(module, {.plan = FormatPlan(plan), .pipeline = "clean"}));
  // Few are asked for again, and large ones are large.
  if (lowered_.size() >= 8) lowered_.clear();
  return &lowered_.emplace(key, std::move(module)).first->second;
}

Result<StepOutcome> PlanSearch::Finish(const SearchPoint& point, const StepRequest& request,
                                       bool schedules) {
  HEDDLE_TRY(const Module* lowered, Lowered(point, request));
  HEDDLE_TRY(Pipeline pipeline, ParsePipeline(Schedule(point.policy, point.reshard, schedules),
                                              Passes(), Author::kProgram));
  Module module = *lowered;
  HEDDLE_RETURN_IF_ERROR(RunPipeline(module, pipeline));
  return MeasureStep(module, costs_);
}

Result<PointOutcome> PlanSearch::Evaluate(const SearchPoint& point, int64_t layers,
                                          bool schedules) {
  StepRequest request = RequestFor(point, layers);
  HEDDLE_TRY(StepOutcome last, Finish(point, request, schedules));
  PointOutcome out{last.step, last.exposed, last.peak, last.compute, last.floor};
  int64_t others = point.arrangement.micro_batches - 1;
  if (others == 0) return out;
  request.updates = false;
  HEDDLE_TRY(StepOutcome other, Finish(point, request, schedules));
  out.step += other.step * others;
  out.exposed += other.exposed * others;
  out.compute += other.compute * others;
  out.peak = std::max(out.peak, other.peak);
  out.floor = std::max(out.floor, other.floor);
  return out;
}

Result<PointOutcome> PlanSearch::Extrapolate(const SearchPoint& point, bool schedules) {
  int64_t small = model_.small_layers;
  if (model_.layers <= small + 1) return Evaluate(point, model_.layers, schedules);
  HEDDLE_TRY(PointOutcome a, Evaluate(point, small, schedules));
  HEDDLE_TRY(PointOutcome b, Evaluate(point, small + 1, schedules));
  int64_t more = model_.layers - small - 1;
  return PointOutcome{Line(a.step, b.step, more), Line(a.exposed, b.exposed, more),
                      Line(a.peak, b.peak, more), Line(a.compute, b.compute, more),
                      Line(a.floor, b.floor, more)};
}

Result<TriedPoint> PlanSearch::Try(const SearchPoint& point) {
  HEDDLE_TRY(PointOutcome outcome, Evaluate(point, model_.layers));
  HEDDLE_TRY(Plan plan, PlanFor(point, model_.layers));
  return TriedPoint{point, outcome, std::move(plan)};
}

// --- The search

void PlanSearch::Keep(TriedPoint tried) {
  tried_.push_back(std::move(tried));
  const TriedPoint& last = tried_.back();
  if (last.outcome.peak > options_.budget) return;
  if (!best_ || ComesBefore(last.outcome, tried_[*best_].outcome, options_.budget))
    best_ = tried_.size() - 1;
}

// What a rank computes at least, however it is scheduled: copies of the model do not change what forward and backward do, and the
// optimizer does the least where nothing is kept twice.
void PlanSearch::Bound(std::vector<Candidate>& candidates) {
  std::map<std::tuple<int64_t, int64_t, std::string>, std::optional<Nanos>> known;
  for (Candidate& candidate : candidates) {
    SearchPoint plain{candidate.point.arrangement};
    plain.arrangement.shard *= plain.arrangement.replicate;
    plain.arrangement.replicate = 1;
    plain.policy = candidate.point.policy;
    auto [at, added] = known.try_emplace(
        {plain.arrangement.tensor, plain.arrangement.micro_batches, plain.policy});
    if (added) {
      Result<PointOutcome> outcome = Extrapolate(plain, /*schedules=*/false);
      if (outcome.ok()) at->second = outcome->compute;
      if (!outcome.ok()) Note(plain, outcome.diagnostics());
    }
    candidate.compute = at->second.value_or(Nanos{});
    candidate.is_done = !at->second;
  }
}

// A plan that cannot be carried out is none.
void PlanSearch::Note(const SearchPoint& point, const Diagnostics& why) {
  std::string note = fmt::format("{} is left out: {}", Format(point), why[0].message);
  if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
}

// One step further: from bounds to what small models promise, and from there to what it is.
void PlanSearch::Settle(Candidate& candidate) {
  if (!candidate.thought) {
    Result<PointOutcome> promised = Extrapolate(candidate.point, /*schedules=*/true);
    if (promised.ok()) candidate.thought = *promised;
    if (!promised.ok()) Note(candidate.point, promised.diagnostics());
    candidate.is_done = !promised.ok();
    return;
  }
  candidate.is_done = true;
  Result<TriedPoint> tried = Try(candidate.point);
  if (tried.ok()) Keep(*std::move(tried));
  if (!tried.ok()) Note(candidate.point, tried.diagnostics());
}

// The candidate that is worth looking at next, or null. Those that are beaten are done.
PlanSearch::Candidate* PlanSearch::Next(std::vector<Candidate>& candidates) {
  auto promise = [](const Candidate& c) {
    return c.thought.value_or(PointOutcome{.step = c.compute, .compute = c.compute});
  };
  Candidate* next = nullptr;
  size_t done = 0;
  for (Candidate& candidate : candidates) {
    const PointOutcome* best = best_ ? &tried_[*best_].outcome : nullptr;
    if (!candidate.is_done && candidate.IsBeaten(best, options_.budget)) {
      candidate.is_done = true;
      ++pruned_;
    }
    done += candidate.is_done ? 1 : 0;
    if (candidate.is_done) continue;
    if (next == nullptr || ComesBefore(promise(candidate), promise(*next), options_.budget))
      next = &candidate;
  }
  if (options_.progress)
    options_.progress(done, candidates.size(), best_ ? &tried_[*best_] : nullptr);
  return next;
}

Result<SearchResult> PlanSearch::Run() {
  std::vector<Candidate> candidates;
  for (SearchPoint& point : Space()) candidates.push_back({std::move(point), {}, {}});
  if (candidates.empty())
    return Error(Diag::kMeshSize,
                 "{} sequences of a step do not divide over {} devices in any arrangement",
                 options_.global_batch, options_.devices);
  Bound(candidates);
  while (Candidate* next = Next(candidates)) Settle(*next);
  if (!best_) return NothingFits(candidates);
  if (options_.automatic) AddAutomatic();
  FillFront(candidates);
  return SearchResult{Front(), candidates.size(), tried_.size(), pruned_, std::move(notes_)};
}

// With what would: the plan of which small models promise the least.
Failure PlanSearch::NothingFits(std::vector<Candidate>& candidates) {
  const Candidate* least = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!candidate.thought) continue;
    if (least == nullptr || candidate.thought->peak < least->thought->peak) least = &candidate;
  }
  if (least == nullptr)
    return Error(Diag::kInfeasible, "no plan can be carried out; {}",
                 notes_.empty() ? "" : notes_[0]);
  HEDDLE_TRY(TriedPoint tried, Try(least->point));
  return Error(Diag::kInfeasible,
               "no plan fits into {} of each of {} devices; {} takes {}, the least there is",
               Format(options_.budget), options_.devices, Format(tried.point),
               Format(tried.outcome.peak));
}

// The solver's placements on the meshes that it may do something with: that of the best arrangement, all devices in a row, and nodes by
// devices.
void PlanSearch::AddAutomatic() {
  if (tried_[*best_].point.arrangement.micro_batches > 1) return;
  const SearchPoint best = tried_[*best_].point;
  int64_t node = std::min<int64_t>(costs_.cluster().devices_per_node, options_.devices);
  std::set<Arrangement> meshes{{.shard = options_.devices}, best.arrangement};
  if (options_.devices % node == 0 && options_.devices > node)
    meshes.insert({.shard = options_.devices / node, .tensor = node});
  for (const Arrangement& arrangement : meshes) {
    SearchPoint point = best;
    point.arrangement = arrangement;
    point.placed = PlacedBy::kAuto;
    Status found = FindPlacement(point);
    // Too many choices, or not enough time: that mesh is left to presets.
    if (!found.ok()) Note(point, found.diagnostics());
  }
}

Status PlanSearch::FindPlacement(const SearchPoint& point) {
  HEDDLE_TRY(const Module* module, Captured(RequestFor(point, model_.layers)));
  Plan plan;
  plan.mesh = MeshOf(point.arrangement);
  plan.automatic = true;
  CompileOptions how;
  how.pipeline = Schedule(point.policy, point.reshard, true);
  how.automatic.time_limit = options_.solver_seconds;
  how.tries_plans = true;
  HEDDLE_TRY(FoundPlan found, FindPlan(*module, plan, how, costs_));
  found_[point.arrangement] = std::move(found.plan);
  HEDDLE_TRY(TriedPoint tried, Try(point));
  Keep(std::move(tried));
  return Done{};
}

std::vector<TriedPoint> PlanSearch::Front() const {
  std::vector<TriedPoint> sorted;
  for (const TriedPoint& tried : tried_) {
    if (tried.outcome.peak <= options_.budget) sorted.push_back(tried);
  }
  std::ranges::stable_sort(
      sorted, {}, [](const TriedPoint& t) { return std::pair(t.outcome.step, t.outcome.peak); });
  std::vector<TriedPoint> front;
  for (TriedPoint& tried : sorted) {
    if (front.empty() || tried.outcome.peak < front.back().outcome.peak)
      front.push_back(std::move(tried));
  }
  return front;
}

// Less memory for more time: of what small models promise, the points that no other beats.
void PlanSearch::FillFront(std::vector<Candidate>& candidates) {
  std::vector<Candidate*> open;
  for (Candidate& candidate : candidates) {
    if (candidate.thought && candidate.thought->peak <= options_.budget) open.push_back(&candidate);
  }
  std::ranges::stable_sort(
      open, {}, [](const Candidate* c) { return std::pair(c->thought->step, c->thought->peak); });
  Bytes below = tried_[*best_].outcome.peak;
  size_t added = 0;
  for (Candidate* candidate : open) {
    if (candidate->thought->peak >= below || added == kMostFront) continue;
    below = candidate->thought->peak;
    bool known = std::ranges::any_of(
        tried_, [&](const TriedPoint& tried) { return tried.point == candidate->point; });
    if (known) continue;
    ++added;
    Result<TriedPoint> tried = Try(candidate->point);
    if (tried.ok()) Keep(*std::move(tried));
  }
}

}  // namespace heddle
