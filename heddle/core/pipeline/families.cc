#include <algorithm>
#include <cctype>

#include "heddle/core/base/text.h"
#include "heddle/core/pipeline/schedule.h"

namespace heddle {
namespace {

constexpr auto kF = PipelineWork::kForward;
constexpr auto kB = PipelineWork::kBackward;
constexpr auto kI = PipelineWork::kInputGradient;
constexpr auto kW = PipelineWork::kWeightGradient;

// Writes the actions of one rank. Each stage takes micro-batches in ascending order.
class RankWriter {
 public:
  explicit RankWriter(int64_t stages) : counts_(static_cast<size_t>(stages)) {}

  void Add(int64_t stage, PipelineWork work) {
    Counts& counts = counts_[static_cast<size_t>(stage)];
    int32_t& next = work == kF ? counts.forward : work == kW ? counts.weight : counts.backward;
    actions_.push_back({static_cast<int32_t>(stage), work, next++, false});
    if (work == kB) ++counts.weight;
    if (work == kI) pending_.push_back(static_cast<int32_t>(stage));
  }
  // The forward of one stage together with the backward of another.
  void AddPair(int64_t forward, int64_t backward) {
    Add(forward, kF);
    actions_.back().with_next = true;
    Add(backward, kB);
  }
  // The weight gradient that has waited longest, if any.
  void AddOldestWeight() {
    if (oldest_ < pending_.size()) Add(pending_[oldest_++], kW);
  }
  size_t weights_pending() const { return pending_.size() - oldest_; }
  int64_t forwards(int64_t stage) const { return counts_[static_cast<size_t>(stage)].forward; }
  std::vector<PipelineAction>& actions() { return actions_; }

 private:
  // The next micro-batch of each kind of work.
  struct Counts {
    int32_t forward = 0;
    int32_t backward = 0;
    int32_t weight = 0;
  };
  std::vector<Counts> counts_;
  std::vector<PipelineAction> actions_;
  // Stages whose input gradients have been computed, in that order.
  std::vector<int32_t> pending_;
  size_t oldest_ = 0;
};

using RankActions = std::vector<PipelineAction>;

RankActions WriteGPipe(const PipelineShape& shape, int64_t rank) {
  RankWriter out(shape.stages);
  for (PipelineWork work : {kF, kB})
    for (int64_t i = 0; i < shape.micro_batches; ++i) out.Add(rank, work);
  return std::move(out.actions());
}

RankActions Write1F1B(const PipelineShape& shape, int64_t rank) {
  RankWriter out(shape.stages);
  int64_t warm_up = std::min(shape.micro_batches, shape.ranks - rank);
  for (int64_t i = 0; i < warm_up; ++i) out.Add(rank, kF);
  for (int64_t i = 0; i < shape.micro_batches; ++i) {
    out.Add(rank, kB);
    if (warm_up + i < shape.micro_batches) out.Add(rank, kF);
  }
  return std::move(out.actions());
}

RankActions WriteLoopedBFS(const PipelineShape& shape, int64_t rank) {
  RankWriter out(shape.stages);
  for (int64_t stage = rank; stage < shape.stages; stage += shape.ranks)
    for (int64_t i = 0; i < shape.micro_batches; ++i) out.Add(stage, kF);
  RankActions actions = std::move(out.actions());
  // Backward is forward in reverse.
  for (size_t i = actions.size(); i-- > 0;) {
    actions.push_back(actions[i]);
    actions.back().work = kB;
  }
  return actions;
}

// Forwards take the rank's stages in turn, `round` micro-batches each, and backwards likewise from
// the last stage. After a warm-up of forwards the two alternate.
RankActions WriteInterleaved(const PipelineShape& shape, int64_t rank, bool split) {
  RankWriter out(shape.stages);
  int64_t chunks = shape.stages / shape.ranks;
  int64_t rounds = std::max<int64_t>(1, shape.micro_batches / shape.ranks);
  int64_t round = shape.micro_batches / rounds;
  int64_t total = shape.micro_batches * chunks;
  int64_t hops = shape.ranks - 1 - rank;
  int64_t warm_up = std::min(total, (chunks - 1) * round + (split ? 1 : 2) * hops);
  auto stage_of = [&](int64_t chunk) { return chunk * shape.ranks + rank; };
  for (int64_t i = 0; i < warm_up + total; ++i) {
    if (i < total) out.Add(stage_of(i / round % chunks), kF);
    if (i < warm_up) continue;
    int64_t backward = i - warm_up;
    out.Add(stage_of(chunks - 1 - backward / round % chunks), split ? kI : kB);
    if (split && backward >= rank) out.AddOldestWeight();
  }
  while (out.weights_pending() > 0) out.AddOldestWeight();
  return std::move(out.actions());
}

RankActions WriteInterleaved1F1B(const PipelineShape& shape, int64_t rank) {
  return WriteInterleaved(shape, rank, false);
}

RankActions WriteZeroBubble(const PipelineShape& shape, int64_t rank) {
  return WriteInterleaved(shape, rank, true);
}

// V mapping: the first half of the stages goes down the ranks, the second half returns.
RankActions WriteZBV(const PipelineShape& shape, int64_t rank) {
  RankWriter out(shape.stages);
  int64_t down = rank;
  int64_t up = shape.stages - 1 - rank;
  int64_t hops = shape.ranks - rank;
  // The pattern needs this many. Superfluous actions are removed at the end.
  int64_t micro_batches = std::max(shape.micro_batches, 2 * shape.ranks - 1);
  auto backward = [&](int64_t stage) {
    out.Add(stage, kI);
    out.Add(stage, kW);
  };
  for (int64_t i = 0; i < 2 * hops - 1; ++i) out.Add(down, kF);
  for (int64_t i = 0; i < rank; ++i) {
    out.Add(up, kF);
    out.Add(down, kF);
  }
  for (int64_t i = 0; i < hops; ++i) {
    out.Add(up, kF);
    backward(up);
  }
  while (out.forwards(up) < out.forwards(down) || out.forwards(down) < micro_batches) {
    if (out.forwards(down) < micro_batches) out.Add(down, kF);
    backward(down);
    out.Add(up, kF);
    backward(up);
  }
  for (int64_t i = 0; i < rank; ++i) {
    out.Add(down, kI);
    out.Add(up, kI);
  }
  for (int64_t i = 0; i < hops; ++i) backward(down);
  for (int64_t i = 0; i < rank; ++i) out.Add(up, kW);
  for (int64_t i = 0; i < rank; ++i) out.Add(down, kW);
  std::erase_if(out.actions(), [&](const PipelineAction& action) {
    return action.micro_batch >= shape.micro_batches;
  });
  return std::move(out.actions());
}

// DeepSeek's DualPipe, cut in half. `up` and `down` as above.
RankActions WriteDualPipeV(const PipelineShape& shape, int64_t rank) {
  RankWriter out(shape.stages);
  int64_t down = rank;
  int64_t up = shape.stages - 1 - rank;
  int64_t hops = shape.ranks - 1 - rank;
  for (int64_t i = 0; i < 2 * hops; ++i) out.Add(down, kF);
  for (int64_t i = 0; i <= rank; ++i) {
    out.Add(down, kF);
    out.Add(up, kF);
  }
  for (int64_t i = 0; i < hops; ++i) {
    out.Add(up, kI);
    out.AddOldestWeight();
    out.Add(up, kF);
  }
  for (int64_t i = 0; i < shape.micro_batches - 2 * shape.ranks + rank + 1; ++i) {
    if (i == 0 && hops == 0) {
      // The last rank's backward starts the way back, so it does not wait for this forward's pair.
      out.Add(down, kF);
      out.Add(up, kB);
    } else {
      out.AddPair(down, up);
    }
    out.AddPair(up, down);
  }
  for (int64_t i = 0; i < hops; ++i) {
    out.Add(up, kB);
    out.AddPair(up, down);
  }
  // The second half of these 2 * rank + 2 backwards leaves its weight gradients for later.
  for (int64_t i = 0; i < 2 * rank + 2; ++i) {
    out.Add(i % 2 == 0 ? up : down, i > rank ? kI : kB);
  }
  for (int64_t i = 0; i < hops; ++i) {
    out.AddOldestWeight();
    out.Add(down, kI);
  }
  while (out.weights_pending() > 0) out.AddOldestWeight();
  return std::move(out.actions());
}

struct FamilyRule {
  ScheduleFamily family;
  RankActions (*write)(const PipelineShape&, int64_t rank);
};

constexpr FamilyRule kRules[] = {
    {{"GPipe", StagesPerRank::kOne, "all forwards, then all backwards"}, WriteGPipe},
    {{"1F1B", StagesPerRank::kOne, "one forward, one backward after a warm-up"}, Write1F1B},
    {{"Interleaved1F1B", StagesPerRank::kAny, "1F1B with several stages per rank"},
     WriteInterleaved1F1B},
    {{"LoopedBFS", StagesPerRank::kAny, "GPipe with several stages per rank"}, WriteLoopedBFS},
    {{"ZB-H1", StagesPerRank::kOne, "1F1B with weight gradients in its bubbles"}, WriteZeroBubble},
    {{"InterleavedZeroBubble", StagesPerRank::kAny, "ZB-H1 with several stages per rank"},
     WriteZeroBubble},
    {{"ZBVZeroBubble", StagesPerRank::kTwo, "zero bubble with two stages per rank, in a V"},
     WriteZBV},
    {{"DualPipeV", StagesPerRank::kTwo, "two stages per rank in a V, forward paired with backward"},
     WriteDualPipeV},
};

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

Status CheckShape(const ScheduleFamily& family, const PipelineShape& shape) {
  auto [ranks, stages, micro_batches] = shape;
  if (micro_batches > kMostStageMicroBatches / stages)
    return Error(Diag::kSchedule, "{} stages x {} micro-batches are too many; the limit is {}",
                 WithCommas(stages), WithCommas(micro_batches), WithCommas(kMostStageMicroBatches));
  if (family.stages == StagesPerRank::kOne && stages != ranks)
    return Error(Diag::kSchedule, "{} has one stage per rank; {} ranks cannot have {} stages",
                 family.name, ranks, stages);
  if (family.stages == StagesPerRank::kTwo && stages != 2 * ranks)
    return Error(Diag::kSchedule, "{} has two stages per rank; {} need {} stages, not {}",
                 family.name, Counted(ranks, "rank"), 2 * ranks, stages);
  if (stages % ranks != 0)
    return Error(Diag::kSchedule, "{} stages cannot be divided equally among {} ranks", stages,
                 ranks);
  if (family.name == "DualPipeV" && micro_batches < stages)
    return Error(Diag::kSchedule,
                 "DualPipeV needs at least as many micro-batches as stages; {} is "
                 "fewer than {}",
                 micro_batches, stages);
  bool rounds = family.name.starts_with("Interleaved") || family.name == "ZB-H1";
  int64_t count = std::max<int64_t>(1, micro_batches / ranks);
  if (rounds && micro_batches % count != 0)
    return Error(Diag::kSchedule,
                 "{} runs in {} / {} = {} rounds, and {} micro-batches are not a multiple of {}; "
                 "use {} or {}",
                 family.name, micro_batches, ranks, count, micro_batches, count, count * ranks,
                 (count + 1) * ranks);
  return Done{};
}

}  // namespace

const std::vector<ScheduleFamily>& ScheduleFamilies() {
  static const std::vector<ScheduleFamily> families = [] {
    std::vector<ScheduleFamily> out;
    for (const FamilyRule& rule : kRules) out.push_back(rule.family);
    return out;
  }();
  return families;
}

const ScheduleFamily* FindScheduleFamily(std::string_view name) {
  if (SameName(name, "ZBV")) name = "ZBVZeroBubble";
  for (const ScheduleFamily& family : ScheduleFamilies())
    if (SameName(family.name, name)) return &family;
  return nullptr;
}

Result<PipelineSchedule> MakeSchedule(const ScheduleFamily& family, const PipelineShape& shape) {
  HEDDLE_CHECK(shape.ranks > 0 && shape.stages > 0 && shape.micro_batches > 0, "an empty pipeline");
  HEDDLE_RETURN_IF_ERROR(CheckShape(family, shape));
  const FamilyRule* rule = std::ranges::find(
      kRules, family.name, [](const FamilyRule& each) { return each.family.name; });
  PipelineSchedule schedule{std::string(family.name), shape.stages, shape.micro_batches, {}};
  for (int64_t rank = 0; rank < shape.ranks; ++rank)
    schedule.ranks.push_back(rule->write(shape, rank));
  return schedule;
}

}  // namespace heddle
