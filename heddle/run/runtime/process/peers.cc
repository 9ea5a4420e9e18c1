#include "heddle/run/runtime/process/peers.h"

#include <algorithm>
#include <csignal>
#include <stdexcept>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"
#include "heddle/run/runtime/process/rendezvous.h"
#include "heddle/run/runtime/process/within.h"

namespace heddle::run {
namespace {

using std::chrono::milliseconds;

// Time for rank 0 to report to the others after it has waited for them.
constexpr milliseconds kSlack{2000};
// Number of timeouts that ranks may spend between two exchanges.
constexpr int kRounds = 10;

// Waits for all keys. Returns the ranks whose keys are missing at the timeout.
std::vector<int64_t> WaitForRanks(const StorePtr& store,
                                  const std::vector<std::string>& key_by_rank,
                                  milliseconds timeout) {
  try {
    store->wait(key_by_rank, timeout);
    return {};
  } catch (const std::exception&) {
    // Keys are missing, or the store does not answer; in the second case, further calls may block,
    // too.
  }
  auto find = [store, key_by_rank] {
    std::vector<int64_t> missing;
    for (size_t rank = 0; rank < key_by_rank.size(); ++rank) {
      if (!store->check({key_by_rank[rank]})) missing.push_back(static_cast<int64_t>(rank));
    }
    return missing;
  };
  auto missing = Within<std::vector<int64_t>>(timeout, find);
  if (!missing) throw std::runtime_error("it does not answer");
  return *missing;
}

// Returns the lines in which two texts differ.
std::string Difference(std::string_view mine, std::string_view first) {
  std::vector<std::string_view> a = Split(mine, '\n');
  std::vector<std::string_view> b = Split(first, '\n');
  std::string text;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    std::string_view left = i < a.size() ? a[i] : "nothing";
    std::string_view right = i < b.size() ? b[i] : "nothing";
    if (left != right) text += fmt::format("\n  `{}`, rank 0 has `{}`", left, right);
  }
  return text;
}

Failure LostStore(const PeerAddress& address, const Watch& watch, const std::exception& error) {
  return Error(Diag::kPeers, "rank {} lost the store of {}: {}", address.rank,
               address.rank_0_serves ? watch.NameOf(0) : "the launcher", C10dErrorMessage(error));
}

}  // namespace

Result<std::unique_ptr<Peers>> Peers::Meet(const PeerAddress& address, milliseconds timeout,
                                           const std::function<void(const std::string&)>& notice) {
  // When a peer ends, it closes its sockets. With SIGPIPE ignored, c10d reports that instead of
  // dying.
  std::signal(SIGPIPE, SIG_IGN);
  QuietC10d();
  HEDDLE_TRY(Connections made, Rendezvous(address, timeout, notice));
  std::unique_ptr<Peers> peers(new Peers(address, timeout, std::move(made.store)));
  peers->watch_ = std::make_unique<Watch>(std::move(made.watched), address.rank_0_serves,
                                          address.rank, std::move(made.hosts));
  return peers;
}

Peers::~Peers() {
  if (watch_ && rank() == 0 && address_.rank_0_serves) watch_->WaitForOthers();
}

Result<std::vector<std::string>> Peers::Exchange(const std::string& text) {
  auto key = [](int64_t number, int64_t rank) {
    return fmt::format("exchange/{}/{}", number, rank);
  };
  std::vector<std::string> keys;
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < world_size(); ++rank) {
    keys.push_back(key(exchanges_, rank));
    all.push_back(rank);
  }
  try {
    store_->set(keys[static_cast<size_t>(rank())], ToStore(text));
    // All participants of this exchange have read the one before the last.
    if (exchanges_ >= 2) store_->deleteKey(key(exchanges_ - 2, rank()));
    ++exchanges_;
    for (int round = 0; !WaitForRanks(store_, keys, timeout_).empty(); ++round) {
      std::string missing = watch_->Missing(all);
      if (missing.empty() && round < kRounds) continue;
      return Error(Diag::kPeers, "rank {} gave up waiting for the other ranks: {}", rank(),
                   missing.empty() ? "they are alive but did not get here" : missing);
    }
    std::vector<std::string> said;
    for (const std::vector<uint8_t>& bytes : store_->multiGet(keys))
      said.push_back(FromStore(bytes));
    return said;
  } catch (const std::exception& error) {
    return LostStore(address_, *watch_, error);
  }
}

Status Peers::Announce(const std::string& topic, const std::string& text) {
  try {
    store_->compareSet("announced/" + topic, ToStore(""), ToStore(text));
  } catch (const std::exception& error) {
    return LostStore(address_, *watch_, error);
  }
  return Done{};
}

Result<std::optional<std::string>> Peers::Announced(const std::string& topic) {
  std::string key = "announced/" + topic;
  try {
    if (!store_->check({key})) return std::optional<std::string>();
    return std::optional(FromStore(store_->get(key)));
  } catch (const std::exception& error) {
    return LostStore(address_, *watch_, error);
  }
}

std::string Peers::Judge(const std::string& topic, const std::string& lines) {
  std::vector<std::string> keys;
  for (int64_t rank = 0; rank < world_size(); ++rank)
    keys.push_back(fmt::format("say/{}/{}", topic, rank));
  std::vector<int64_t> missing = WaitForRanks(store_, keys, timeout_);
  if (!missing.empty())
    return fmt::format("rank{} {} did not report within {} ms what {} {} is",
                       missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), timeout_.count(),
                       missing.size() == 1 ? "its" : "their", topic);
  for (int64_t rank = 1; rank < world_size(); ++rank) {
    std::string said = FromStore(store_->get(keys[static_cast<size_t>(rank)]));
    if (said != lines)
      return fmt::format("rank {} differs from rank 0 in its {}:{}", rank, topic,
                         Difference(said, lines));
  }
  return "";
}

Status Peers::Agree(const std::string& topic, const std::string& lines) {
  std::string verdict_key = "verdict/" + topic;
  std::string verdict;
  try {
    store_->set(fmt::format("say/{}/{}", topic, rank()), ToStore(lines));
    if (rank() == 0) store_->set(verdict_key, ToStore(Judge(topic, lines)));
    store_->wait({verdict_key}, timeout_ + kSlack);
    verdict = FromStore(store_->get(verdict_key));
  } catch (const std::exception& error) {
    return Error(Diag::kPeers, "rank {} heard nothing from {} about the {}: {}", rank(),
                 watch_->NameOf(0), topic, C10dErrorMessage(error));
  }
  if (verdict.empty()) return Done{};
  return Error(Diag::kPeers, "{}", verdict);
}

}  // namespace heddle::run
