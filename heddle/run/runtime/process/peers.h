// Peers: the processes of a job, one per rank.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "heddle/run/runtime/process/watch.h"

namespace heddle::run {

class Peers {
 public:
  // Waits for all ranks, at most `timeout`. Fails with the list of ranks that have connected and
  // that have not. `notice` is passed to Rendezvous.
  static Result<std::unique_ptr<Peers>> Meet(
      const PeerAddress& address, std::chrono::milliseconds timeout,
      const std::function<void(const std::string&)>& notice = [](const std::string&) {});
  // If rank 0 holds the store, it waits for the others to end.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int64_t rank() const { return address_.rank; }
  int64_t world_size() const { return address_.world_size; }
  int64_t local_rank() const { return address_.local_rank; }
  // MASTER_ADDR.
  const std::string& host() const { return address_.host; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const StorePtr& store() const { return store_; }
  Watch& watch() { return *watch_; }

  // Checks that all ranks pass the same text. Otherwise fails on every rank, with the lines in
  // which one rank differs from rank 0. Call once per topic.
  Status Agree(const std::string& topic, const std::string& lines);
  // Returns the texts of all ranks, by rank. All ranks must call this the same number of times.
  // Waits while the others are alive, at most ten timeouts.
  Result<std::vector<std::string>> Exchange(const std::string& text);
  // Announce publishes a text about a topic; only the first text of all ranks counts. Announced
  // returns it. Neither waits.
  Status Announce(const std::string& topic, const std::string& text);
  Result<std::optional<std::string>> Announced(const std::string& topic);
  // Returns a unique number. Ranks that create objects in the same order get the same numbers.
  int64_t NextNumber() { return next_number_++; }

 private:
  Peers(PeerAddress address, std::chrono::milliseconds timeout, StorePtr store)
      : address_(std::move(address)), timeout_(timeout), store_(std::move(store)) {}
  // On rank 0: compares the texts of all ranks. Returns an empty string if they agree.
  std::string Judge(const std::string& topic, const std::string& lines);

  PeerAddress address_;
  std::chrono::milliseconds timeout_;
  StorePtr store_;
  std::unique_ptr<Watch> watch_;
  int64_t next_number_ = 0;
  int64_t exchanges_ = 0;
};

}  // namespace heddle::run
