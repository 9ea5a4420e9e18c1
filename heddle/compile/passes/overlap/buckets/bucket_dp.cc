#include "heddle/compile/passes/overlap/buckets/bucket_dp.h"

#include <algorithm>

namespace heddle::compile {
namespace {

// States kept per prefix, and jobs per bucket. A sequence of a dozen jobs never exceeds either.
constexpr size_t kMostStates = 32;
constexpr size_t kMostMembers = 48;

// The state after the jobs up to some position are in buckets: when the communicator is free, and
// the delay of compute.
struct State {
  Nanos free;
  Nanos delay;
  // The last bucket begins at this job, after this state of its prefix.
  uint32_t begin = 0;
  uint32_t from = 0;
  uint32_t buckets = 0;
};

// Non-dominated ways to divide a prefix, by increasing delay and decreasing time at which the
// communicator is free.
class Front {
 public:
  void Add(const State& state) {
    auto at = std::ranges::upper_bound(states_, state, Before);
    if (at != states_.begin() && std::prev(at)->free <= state.free) return;
    auto last = at;
    while (last != states_.end() && last->free >= state.free) ++last;
    if (last == at) {
      states_.insert(at, state);
    } else {
      *at = state;
      states_.erase(at + 1, last);
    }
  }

  // Adds several states, sorted by increasing delay and decreasing free time.
  void Merge(const std::vector<State>& states) {
    if (states.empty()) return;
    auto at = std::ranges::upper_bound(states_, states[0], Before);
    auto first = states.begin();
    for (; first != states.end(); ++first) {
      while (at != states_.end() && !Before(*first, *at)) ++at;
      if (at == states_.begin() || first->free < std::prev(at)->free) break;
    }
    // Usually no new state is better than the known ones.
    if (first == states.end()) return;
    merged_.assign(states_.begin(), at);
    auto keep = [&](const State& state) {
      if (merged_.empty() || state.free < merged_.back().free) merged_.push_back(state);
    };
    for (; first != states.end(); ++first) {
      for (; at != states_.end() && !Before(*first, *at); ++at) keep(*at);
      keep(*first);
    }
    for (; at != states_.end(); ++at) keep(*at);
    states_.swap(merged_);
  }

  // Whether any state is better than this one, and than all with more delay and a later free time.
  bool Beats(const State& state) const {
    auto at = std::ranges::upper_bound(states_, state.delay, {}, &State::delay);
    return at != states_.begin() && std::prev(at)->free < state.free;
  }

  // At most kMostStates of them, evenly spaced, with both ends.
  std::vector<State> Take() {
    if (states_.size() <= kMostStates) return std::move(states_);
    std::vector<State> some;
    for (size_t i = 0; i < kMostStates; ++i)
      some.push_back(states_[i * (states_.size() - 1) / (kMostStates - 1)]);
    return some;
  }

 private:
  static bool Before(const State& a, const State& b) {
    return std::tuple(a.delay, a.free, a.buckets) < std::tuple(b.delay, b.free, b.buckets);
  }

  std::vector<State> states_;
  std::vector<State> merged_;
};

class Chooser {
 public:
  explicit Chooser(const BucketProblem& problem)
      : problem_(problem),
        held_(problem.jobs.size() + 1),
        others_(problem.jobs.size() + 1),
        earliest_(problem.jobs.size() + 1) {
    for (size_t i = 0; i < problem.jobs.size(); ++i) {
      held_[i + 1] = held_[i] + problem.jobs[i].held;
      others_[i + 1] = others_[i] + problem.jobs[i].others;
    }
    for (size_t i = 1; i <= problem.jobs.size(); ++i) {
      Nanos released = problem.jobs[i - 1].release;
      earliest_[i] = i == 1 ? released : std::max(earliest_[i - 1], released);
    }
  }

  // The time at which a bucket [begin, end), which may hold `room`, can begin if compute is not
  // delayed.
  Nanos Ready(size_t begin, size_t end, Bytes room) const {
    Nanos ready = earliest_[end];
    // Jobs before `gone` must have been needed by then, so that the bucket fits into memory.
    auto gone =
        static_cast<size_t>(std::ranges::lower_bound(held_, held_[end] - room) - held_.begin());
    gone = std::min(gone, begin);
    if (gone > 0 && problem_.jobs[gone - 1].deadline.value != INT64_MAX)
      ready = std::max(ready, problem_.jobs[gone - 1].deadline);
    return ready;
  }
  // Adds the states after that bucket, which follows one of `states`.
  //
  // `states` are sorted by increasing delay and decreasing free time, and so are most resulting
  // states. No state is better than the first one in which the bucket only waits for compute.
  void AddNext(const std::vector<State>& states, size_t begin, size_t end, Nanos ready,
               const price::BucketCost& cost, Front& front) {
    sorted_.clear();
    State best = states.front();
    best.free = states.back().free;
    if (front.Beats(Next(best, begin, end, ready, cost))) return;
    for (size_t s = 0; s < states.size(); ++s) {
      State next = Next(states[s], begin, end, ready, cost);
      next.from = static_cast<uint32_t>(s);
      while (!sorted_.empty() && next.free < sorted_.back().free &&
             next.delay <= sorted_.back().delay)
        sorted_.pop_back();
      if (sorted_.empty() || (next.free < sorted_.back().free)) {
        sorted_.push_back(next);
      } else {
        front.Add(next);
      }
      if (WaitsForCompute(states[s], begin, ready, cost)) break;
    }
    front.Merge(sorted_);
  }
  Nanos End(State state) const {
    state.free += problem_.others;
    KeepUp(state, problem_.others_due);
    return std::max(state.free, problem_.compute + state.delay);
  }
  // Whether the bucket fits into `room`, or has one member.
  bool Allowed(size_t begin, size_t end, Bytes room) const {
    return end - begin == 1 || held_[end] - held_[begin] <= room;
  }

 private:
  // Whether the communicator is idle when the bucket begins, and its earlier work was not late.
  bool WaitsForCompute(const State& state, size_t begin, Nanos ready,
                       const price::BucketCost& cost) const {
    const Nanos free = state.free + problem_.jobs[begin].others;
    const Nanos due = problem_.jobs[begin].others_due;
    return free <= ready + state.delay + cost.ahead &&
           (due.value == INT64_MAX || free - due <= state.delay);
  }
  State Next(const State& state, size_t begin, size_t end, Nanos ready,
             const price::BucketCost& cost) const {
    State next = state;
    // Other work up to the first member is launched before the bucket; work up to the last member,
    // after it.
    next.free += problem_.jobs[begin].others;
    KeepUp(next, problem_.jobs[begin].others_due);
    next.free = std::max(next.free, ready + state.delay + cost.ahead) + cost.length;
    next.delay += cost.ahead + cost.behind;
    Nanos due = problem_.jobs[begin].deadline;
    if (due.value != INT64_MAX) next.delay = std::max(next.delay, next.free - due + cost.behind);
    next.free += others_[end] - others_[begin + 1];
    KeepUp(next, problem_.jobs[end - 1].others_due);
    next.begin = static_cast<uint32_t>(begin);
    next.buckets = state.buckets + 1;
    return next;
  }
  // Delays compute if work of the communicator finishes after it was needed.
  static void KeepUp(State& state, Nanos due) {
    if (due.value != INT64_MAX) state.delay = std::max(state.delay, state.free - due);
  }

  const BucketProblem& problem_;
  std::vector<Bytes> held_;
  std::vector<Nanos> others_;
  std::vector<Nanos> earliest_;
  std::vector<State> sorted_;
};

}  // namespace

std::vector<size_t> ChooseBuckets(const BucketProblem& problem) {
  Chooser chooser(problem);
  size_t count = problem.jobs.size();
  std::vector<std::vector<State>> states(count + 1);
  states[0].push_back({});
  for (size_t end = 1; end <= count; ++end) {
    Front front;
    Bytes room{INT64_MAX};
    for (size_t begin = end; begin-- > 0 && end - begin <= kMostMembers;) {
      room = std::min(room, problem.jobs[begin].room);
      if (!chooser.Allowed(begin, end, room)) break;
      const price::BucketCost cost = problem.price(begin, end);
      const Nanos ready = chooser.Ready(begin, end, room);
      chooser.AddNext(states[begin], begin, end, ready, cost, front);
    }
    states[end] = front.Take();
  }
  std::vector<size_t> begins;
  if (count == 0) return begins;
  auto best = std::ranges::min_element(states[count], [&](const State& a, const State& b) {
    return std::tuple(chooser.End(a), a.buckets) < std::tuple(chooser.End(b), b.buckets);
  });
  const State* at = &*best;
  for (size_t end = count; end > 0;) {
    begins.push_back(at->begin);
    end = at->begin;
    at = &states[end][at->from];
  }
  std::ranges::reverse(begins);
  return begins;
}

}  // namespace heddle::compile
