#include "heddle/run/runtime/process/rendezvous.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <unistd.h>

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "heddle/core/base/text.h"
#include "heddle/run/runtime/process/own_address.h"
#include "heddle/run/runtime/process/watch.h"
#include "heddle/run/runtime/process/within.h"

namespace heddle::run {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

constexpr milliseconds kNotice{3000};
// Time for a rank to report after its timeout.
constexpr milliseconds kReportTime{2000};
constexpr milliseconds kPoll{20};
// Key of the error that two processes have the same rank.
constexpr const char* kDoubled = "doubled";
// Keys of counters: processes that have connected, and processes that give up and have read the
// reason.
constexpr const char* kCame = "came";
constexpr const char* kLeft = "left";
// Rounds of the job: how many have begun, and whether one has.
constexpr const char* kNewestRound = "rounds";
constexpr const char* kBegun = "begun";
// In a round, rank 0 has seen all ranks.
constexpr const char* kComplete = "complete";

std::string ThisHost() {
  char host[128] = "an unknown host";
  ::gethostname(host, sizeof host - 1);
  return host;
}

std::string ClaimOf(int64_t rank) { return fmt::format("claim/{}", rank); }

// Shared by the caller and the thread that talks to the store. The store may never answer, so the
// thread may outlive the caller.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<Connections>> result;
  // The missing store or ranks; empty while unknown, or if another rank reports them.
  std::string waiting_for;

  void WaitsFor(std::string what) {
    std::lock_guard lock(mutex);
    waiting_for = std::move(what);
    changed.notify_all();
  }
};

// One rank's part in the rendezvous.
//
// A launcher may restart the ranks with the same store, which then has the keys of ended processes.
// Launchers on several machines may count restarts differently. So rank 0 begins a round, and the
// others join the newest one until rank 0 has confirmed it.
class Arrival {
 public:
  Arrival(const PeerAddress& address, milliseconds timeout, std::shared_ptr<Progress> progress)
      : address_(address),
        timeout_(timeout),
        progress_(std::move(progress)),
        serves_(address.rank_0_serves && address.rank == 0) {
    for (int64_t rank = 0; rank < address.world_size; ++rank) keys_.push_back(Watch::KeyOf(rank));
  }

  Result<Connections> Run() {
    progress_->WaitsFor(fmt::format("the store at {}:{}{}", address_.host, address_.port,
                                    address_.rank_0_serves ? ", which rank 0 opens" : ""));
    HEDDLE_TRY(StorePtr store, Connect());
    HEDDLE_TRY(StorePtr watched, ConnectStore(address_, /*serve=*/false, timeout_,
                                              std::max(Left(), milliseconds(100))));
    progress_->WaitsFor("");
    try {
      HEDDLE_TRY(int64_t round, Join(store));
      store = InRound(store, round);
      std::vector<std::string> hosts = Hosts(*store);
      return Connections{std::move(store), InRound(watched, round), std::move(hosts)};
    } catch (const std::exception& error) {
      return Error(Diag::kPeers, "rank {} lost the store of {}: {}", address_.rank,
                   address_.rank_0_serves ? "rank 0" : "the launcher", C10dErrorMessage(error));
    }
  }

 private:
  milliseconds Left() const {
    auto left = begin_ + timeout_ - std::chrono::steady_clock::now();
    return std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds(0));
  }

  Result<StorePtr> Connect() {
    Result<StorePtr> store = ConnectStore(address_, serves_, timeout_, timeout_);
    if (store.ok() || !serves_) return store;
    // If another process with rank 0 uses the port, connect to its store to name it.
    auto first = Within<Result<StorePtr>>(kNotice, [address = address_, timeout = timeout_] {
      return ConnectStore(address, /*serve=*/false, timeout, kNotice);
    });
    if (!first || !first->ok()) return store;
    serves_ = false;
    return *std::move(first);
  }

  static StorePtr InRound(const StorePtr& store, int64_t round) {
    return c10::make_intrusive<c10d::PrefixStore>(std::to_string(round), store);
  }

  // The newest round that has begun. A store of rank 0 has only round 0.
  int64_t NewestRound(c10d::Store& store) const {
    return address_.rank_0_serves ? 0 : store.add(kNewestRound, 0);
  }

  // Joins the newest round, and newer ones that begin meanwhile. Returns the one with all ranks.
  Result<int64_t> Join(const StorePtr& job) {
    if (address_.rank == 0 && !address_.rank_0_serves) {
      job->add(kNewestRound, 1);
      job->set(kBegun, ToStore("yes"));
    }
    while (true) {
      int64_t round = NewestRound(*job);
      StorePtr store = InRound(job, round);
      store->add(kCame, 1);
      HEDDLE_TRY(bool claimed, Claim(*store));
      HEDDLE_TRY(bool complete, WaitForAll(*job, *store, round, claimed));
      if (complete) return round;
    }
  }

  // Registers this process for its rank. The first process gets the rank. Returns false if this
  // round is an earlier one, whose processes have ended.
  Result<bool> Claim(c10d::Store& store) const {
    // Processes in two containers may have the same host name and number.
    std::string token =
        fmt::format("{}\n{}\n{:x}", ::getpid(), ThisHost(), begin_.time_since_epoch().count());
    std::string holder =
        FromStore(store.compareSet(ClaimOf(address_.rank), ToStore(""), ToStore(token)));
    if (holder == token) {
      store.set(keys_[static_cast<size_t>(address_.rank)], ToStore("here"));
      return true;
    }
    if (!address_.rank_0_serves && address_.rank != 0) return false;
    auto process = [](const std::string& claim) {
      std::vector<std::string_view> parts = Split(claim, '\n');
      return fmt::format("process {} on {}", parts[0], parts[1]);
    };
    std::string text =
        fmt::format("two processes have rank {}: {} and {}; give each its own RANK{}",
                    address_.rank, process(holder), process(token),
                    address_.rank == 0 ? ", or its own MASTER_PORT if they are two jobs" : "");
    store.set(kDoubled, ToStore(text));
    Leave(store, kNotice);
    return Error(Diag::kPeers, "{}", text);
  }

  // Returns true when all ranks have joined the round, and false if a newer one has begun.
  Result<bool> WaitForAll(c10d::Store& job, c10d::Store& store, int64_t round, bool claimed) {
    // With more ranks, each asks less often.
    milliseconds interval = milliseconds(200) * (1 + address_.world_size / 64);
    bool listed = false;
    while (!IsComplete(job, store, round, claimed, std::min(Left(), interval))) {
      if (NewestRound(job) != round) return false;
      bool doubled = store.check({kDoubled});
      bool over = Left() == milliseconds(0);
      if (!doubled && !over && (listed || timeout_ - Left() < kNotice)) continue;
      std::vector<int64_t> here;
      std::vector<int64_t> missing;
      for (int64_t rank = 0; rank < address_.world_size; ++rank)
        (IsHere(store, rank, claimed) ? here : missing).push_back(rank);
      if (missing.empty()) continue;
      if (doubled) {
        std::string text = FromStore(store.get(kDoubled));
        Leave(store, kNotice);
        return Error(Diag::kPeers, "{}", text);
      }
      if (over) {
        Leave(store, milliseconds(0));
        return Error(Diag::kPeers, "rank {} waited {} ms for {}: {} connected, {} did not",
                     address_.rank, timeout_.count(), Counted(address_.world_size, "rank"),
                     fmt::join(here, ", "), fmt::join(missing, ", "));
      }
      listed = true;
      if (here[0] == address_.rank)
        progress_->WaitsFor(
            fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")));
    }
    return true;
  }

  // Waits a moment for all ranks to join the round, and for rank 0 to confirm it.
  bool IsComplete(c10d::Store& job, c10d::Store& store, int64_t round, bool claimed,
                  milliseconds moment) const {
    if (!claimed) {
      std::this_thread::sleep_for(moment);
      return false;
    }
    if (round == 0 && !address_.rank_0_serves) {
      Has(job, {kBegun}, moment);
      return false;
    }
    if (!Has(store, keys_, moment)) return false;
    if (address_.rank == 0) store.set(kComplete, ToStore("yes"));
    return Has(store, {kComplete}, moment);
  }

  // Whether a rank has joined the round. In a round of ended processes, only this rank counts. Once
  // all have joined, only rank 0 can be missing: it has not confirmed the round.
  bool IsHere(c10d::Store& store, int64_t rank, bool claimed) const {
    if (rank == address_.rank) return true;
    if (!claimed) return rank != 0;
    if (rank == 0 && Has(store, keys_, milliseconds(1))) return false;
    return store.check({keys_[static_cast<size_t>(rank)]});
  }

  // The names of the machines of all ranks, from their claims.
  std::vector<std::string> Hosts(c10d::Store& store) const {
    std::vector<std::string> claims;
    for (int64_t rank = 0; rank < address_.world_size; ++rank) claims.push_back(ClaimOf(rank));
    std::vector<std::string> hosts;
    for (const std::vector<uint8_t>& claim : store.multiGet(claims))
      hosts.emplace_back(Split(FromStore(claim), '\n')[1]);
    return hosts;
  }

  // Waits a moment for keys.
  static bool Has(c10d::Store& store, const std::vector<std::string>& keys, milliseconds moment) {
    try {
      store.wait(keys, std::max(moment, milliseconds(1)));
      return true;
    } catch (const std::exception&) {
      // If the store is gone, the next call throws.
      return false;
    }
  }

  // Rank 0 keeps the store open until every connected process has read why the job ends, for at
  // most one more timeout. It waits at least `late` if some processes have not connected.
  void Leave(c10d::Store& store, milliseconds late) const {
    int64_t left = store.add(kLeft, 1);
    Time begin = std::chrono::steady_clock::now();
    while (serves_ && left < address_.world_size) {
      auto waited = std::chrono::steady_clock::now() - begin;
      if (waited >= timeout_ || (waited >= late && left >= store.add(kCame, 0))) return;
      std::this_thread::sleep_for(kPoll);
      left = store.add(kLeft, 0);
    }
  }

  PeerAddress address_;
  milliseconds timeout_;
  std::shared_ptr<Progress> progress_;
  // Whether this process holds the store.
  bool serves_;
  Time begin_ = std::chrono::steady_clock::now();
  std::vector<std::string> keys_;
};

}  // namespace

Result<Connections> Rendezvous(const PeerAddress& address, milliseconds timeout,
                               const std::function<void(const std::string&)>& notice) {
  auto progress = std::make_shared<Progress>();
  Time begin = std::chrono::steady_clock::now();
  bool serves = address.rank_0_serves && address.rank == 0;
  Time end = begin + timeout + kReportTime + (serves ? timeout : milliseconds(0));
  std::thread([progress, address, timeout] {
    Result<Connections> result = Arrival(address, timeout, progress).Run();
    std::lock_guard lock(progress->mutex);
    progress->result = std::move(result);
    progress->changed.notify_all();
  }).detach();
  std::unique_lock lock(progress->mutex);
  auto ended = [&] { return progress->result.has_value(); };
  auto known = [&] { return ended() || !progress->waiting_for.empty(); };
  if (timeout > kNotice && !progress->changed.wait_until(lock, begin + kNotice, ended)) {
    progress->changed.wait_until(lock, end, known);
    if (!ended() && known())
      notice(fmt::format("rank {} has waited {} s for {}; it gives up after {} s", address.rank,
                         kNotice.count() / 1000, progress->waiting_for, timeout.count() / 1000));
  }
  progress->changed.wait_until(lock, end, ended);
  if (ended()) return *std::move(progress->result);
  auto find = [host = address.host] {
    Result<std::string> own = AddressTowards(host);
    return own.ok() ? std::string() : own.diagnostics()[0].message;
  };
  std::string unknown = Within<std::string>(kReportTime, find).value_or("");
  if (!unknown.empty()) return Error(Diag::kPeers, "rank {}: {}", address.rank, unknown);
  return Error(Diag::kPeers,
               "rank {} got no answer from the store at {}:{} within {} ms; if another program "
               "listens there, set MASTER_PORT to a free port",
               address.rank, address.host, address.port, timeout.count());
}

}  // namespace heddle::run
