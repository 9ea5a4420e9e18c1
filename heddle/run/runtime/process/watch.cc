#include "heddle/run/runtime/process/watch.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"

namespace heddle::run {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

constexpr std::string_view kEnded = "ended";
constexpr std::string_view kFailed = "failed: ";

Time Now() { return std::chrono::steady_clock::now(); }

}  // namespace

struct Watch::State {
  StorePtr store;
  // The process that holds the store.
  std::string holder;
  int64_t rank = 0;
  // The machine of each rank; empty if all have the same.
  std::vector<std::string> hosts;
  // With more ranks, each sends heartbeats less often, to limit the load of the store.
  milliseconds interval{};
  std::vector<std::string> keys;

  std::mutex mutex;
  std::condition_variable changed;
  // This rank's status, sent with each heartbeat.
  std::string own;
  bool done = false;
  bool thread_ended = false;
  // By rank: its last heartbeat, and when it changed.
  std::vector<std::string> signs;
  std::vector<Time> heard;
  // Time of the store's last answer.
  Time answered = Now();

  // A rank on a busy machine can be this late and still be alive.
  milliseconds patience() const { return interval * 8; }
  bool Silent(int64_t peer) const {
    auto at = static_cast<size_t>(peer);
    return !Over(at) && Now() - heard[at] > patience();
  }
  bool StoreSilent() const { return Now() - answered > patience(); }
  // Returns ` on node1`, or nothing if all ranks have one machine.
  std::string On(int64_t peer) const {
    return hosts.empty() ? "" : " on " + hosts[static_cast<size_t>(peer)];
  }
  bool Over(size_t peer) const {
    return signs[peer].starts_with(kEnded) || signs[peer].starts_with(kFailed);
  }
  std::string MissingNow(const std::vector<int64_t>& group) const;
};

std::string Watch::KeyOf(int64_t rank) { return fmt::format("sign/{}", rank); }

Watch::Watch(StorePtr store, bool rank_0_serves, int64_t rank, std::vector<std::string> hosts)
    : state_(std::make_shared<State>()) {
  auto ranks = static_cast<int64_t>(hosts.size());
  state_->store = std::move(store);
  state_->rank = rank;
  state_->interval = milliseconds(200) * (1 + ranks / 64);
  for (int64_t peer = 0; peer < ranks; ++peer) state_->keys.push_back(KeyOf(peer));
  state_->signs.resize(static_cast<size_t>(ranks));
  state_->heard.assign(static_cast<size_t>(ranks), Now());
  if (std::ranges::adjacent_find(hosts, std::ranges::not_equal_to()) != hosts.end())
    state_->hosts = std::move(hosts);
  state_->holder = rank_0_serves ? NameOf(0) : "the launcher";
  std::thread(Beat, state_).detach();
}

Watch::~Watch() {
  std::unique_lock lock(state_->mutex);
  if (state_->own.empty()) state_->own = kEnded;
  state_->done = true;
  state_->changed.notify_all();
  // Waits for the final heartbeat, but not longer if the store hangs.
  state_->changed.wait_for(lock, state_->patience(), [&] { return state_->thread_ended; });
}

void Watch::Beat(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (int64_t beat = 0;; ++beat) {
    std::string sign = state->own.empty() ? std::to_string(beat) : state->own;
    bool last = state->done;
    lock.unlock();
    std::vector<std::vector<uint8_t>> signs;
    try {
      state->store->set(KeyOf(state->rank), ToStore(sign));
      if (!last) signs = state->store->multiGet(state->keys);
    } catch (const std::exception&) {
      // The store is gone and does not return.
      last = true;
    }
    lock.lock();
    for (size_t i = 0; i < signs.size(); ++i) {
      std::string heard = FromStore(signs[i]);
      if (heard == state->signs[i]) continue;
      state->signs[i] = std::move(heard);
      state->heard[i] = Now();
    }
    if (!signs.empty()) state->answered = Now();
    if (last) break;
    state->changed.wait_for(lock, state->interval, [&] { return state->done; });
  }
  state->thread_ended = true;
  state->changed.notify_all();
}

std::string Watch::NameOf(int64_t rank) const {
  return fmt::format("rank {}{}", rank, state_->On(rank));
}

std::string Watch::NamesOf(const std::vector<int64_t>& ranks) const {
  std::vector<std::string> names;
  for (int64_t rank : ranks) names.push_back(fmt::format("{}{}", rank, state_->On(rank)));
  return fmt::format("{}", fmt::join(names, ", "));
}

void Watch::Fail(const std::string& why) {
  std::lock_guard lock(state_->mutex);
  state_->own = fmt::format("{}{}", kFailed, why);
}

std::string Watch::State::MissingNow(const std::vector<int64_t>& group) const {
  if (StoreSilent()) return fmt::format("{}, which holds the store, does not answer", holder);
  // By machine.
  std::map<std::string, std::vector<int64_t>> silent;
  std::vector<std::string> parts;
  for (int64_t peer : group) {
    const std::string& sign = signs[static_cast<size_t>(peer)];
    if (peer == rank) continue;
    if (sign.starts_with(kFailed))
      parts.push_back(fmt::format("rank {}{} {}", peer, On(peer), sign));
    if (sign.starts_with(kEnded))
      parts.push_back(fmt::format("rank {}{} has ended", peer, On(peer)));
    if (Silent(peer)) silent[On(peer)].push_back(peer);
  }
  for (const auto& [on, ranks] : silent) {
    bool one = ranks.size() == 1;
    parts.push_back(fmt::format("rank{} {}{} do{} not answer", one ? "" : "s",
                                fmt::join(ranks, ", "), on, one ? "es" : ""));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string Watch::Missing(const std::vector<int64_t>& group) const {
  // By then, a rank that has just ended has been silent for long enough.
  Time end = Now() + state_->patience() + state_->interval;
  while (true) {
    std::string missing;
    {
      std::lock_guard lock(state_->mutex);
      missing = state_->MissingNow(group);
    }
    if (!missing.empty() || Now() > end) return missing;
    std::this_thread::sleep_for(milliseconds(50));
  }
}

void Watch::WaitForOthers() const {
  while (true) {
    {
      std::lock_guard lock(state_->mutex);
      bool any = false;
      for (size_t peer = 0; peer < state_->signs.size(); ++peer) {
        auto rank = static_cast<int64_t>(peer);
        any |= rank != state_->rank && !state_->Over(peer) && !state_->Silent(rank);
      }
      if (!any || state_->StoreSilent()) return;
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

}  // namespace heddle::run
