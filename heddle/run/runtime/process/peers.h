// Peers: the processes of a job, one rank each.
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
  // Waits until all ranks have come, at most `timeout`. Fails with the list of who came. `notice`
  // is that of Rendezvous.
  static Result<std::unique_ptr<Peers>> Meet(
      const PeerAddress& address, std::chrono::milliseconds timeout,
      const std::function<void(const std::string&)>& notice = [](const std::string&) {});
  // Rank 0 goes last, if it holds the store.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int64_t rank() const { return address_.rank; }
  int64_t world_size() const { return address_.world_size; }
  int64_t local_rank() const { return address_.local_rank; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const StorePtr& store() const { return store_; }
  Watch& watch() { return *watch_; }

  // Fails on every rank unless all say the same, line for line: with the lines in which one differs from rank 0. Once for a topic.
  Status Agree(const std::string& topic, const std::string& lines);
  // What every rank says, by rank. All ranks call it as often. Waits as long as the others are alive, up to ten time-outs.
  Result<std::vector<std::string>> Exchange(const std::string& text);
  // The first to say something about a topic is heard by all. Neither waits.
  Status Announce(const std::string& topic, const std::string& text);
  Result<std::optional<std::string>> Announced(const std::string& topic);
  // A number that no other object of this process gets: the same on every rank that makes them in the same order.
  int64_t NextNumber() { return next_number_++; }

 private:
  Peers(PeerAddress address, std::chrono::milliseconds timeout, StorePtr store)
      : address_(std::move(address)), timeout_(timeout), store_(std::move(store)) {}
  // Of rank 0, over what all have said: empty if they agree.
  std::string Judge(const std::string& topic, const std::string& lines);

  PeerAddress address_;
  std::chrono::milliseconds timeout_;
  StorePtr store_;
  std::unique_ptr<Watch> watch_;
  int64_t next_number_ = 0;
  int64_t exchanges_ = 0;
};

}  // namespace heddle::run
