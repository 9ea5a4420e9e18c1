#include "heddle/run/runtime/process/rendezvous.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <unistd.h>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"
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

std::string ThisProcess() {
  char host[128] = "an unknown host";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

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
      store->add(kCame, 1);
      HEDDLE_RETURN_IF_ERROR(Claim(*store));
      HEDDLE_RETURN_IF_ERROR(WaitForAll(*store));
    } catch (const std::exception& error) {
      return Error(Diag::kPeers, "rank {} lost the store: {}", address_.rank,
                   C10dErrorMessage(error));
    }
    return Connections{std::move(store), std::move(watched)};
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

  // Registers this process for its rank. The first process gets the rank.
  Status Claim(c10d::Store& store) const {
    std::string self = ThisProcess();
    // Processes in two containers may have the same host name and number.
    std::string token = fmt::format("{}\n{:x}", self, begin_.time_since_epoch().count());
    std::string holder = FromStore(
        store.compareSet(fmt::format("claim/{}", address_.rank), ToStore(""), ToStore(token)));
    if (holder == token) {
      store.set(keys_[static_cast<size_t>(address_.rank)], ToStore("here"));
      return Done{};
    }
    std::string text =
        fmt::format("two processes have rank {}: {} and {}; give each its own RANK{}",
                    address_.rank, holder.substr(0, holder.find('\n')), self,
                    address_.rank == 0 ? ", or its own MASTER_PORT if they are two jobs" : "");
    store.set(kDoubled, ToStore(text));
    Leave(store, kNotice);
    return Error(Diag::kPeers, "{}", text);
  }

  Status WaitForAll(c10d::Store& store) {
    // With more ranks, each asks less often.
    milliseconds interval = milliseconds(200) * (1 + address_.world_size / 64);
    bool listed = false;
    while (!AllHere(store, std::clamp(Left(), milliseconds(1), interval))) {
      bool doubled = store.check({kDoubled});
      bool over = Left() == milliseconds(0);
      if (!doubled && !over && (listed || timeout_ - Left() < kNotice)) continue;
      std::vector<int64_t> here;
      std::vector<int64_t> missing;
      for (int64_t rank = 0; rank < address_.world_size; ++rank)
        (store.check({keys_[static_cast<size_t>(rank)]}) ? here : missing).push_back(rank);
      if (missing.empty()) break;
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
    return Done{};
  }

  bool AllHere(c10d::Store& store, milliseconds wait) const {
    try {
      store.wait(keys_, wait);
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
  return Error(Diag::kPeers,
               "rank {} got no answer from the store at {}:{} within {} ms; if another program "
               "listens there, set MASTER_PORT to a free port",
               address.rank, address.host, address.port, timeout.count());
}

}  // namespace heddle::run
