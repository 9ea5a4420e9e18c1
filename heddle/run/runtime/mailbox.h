// Mailbox: the transfers between the coordinates of a pipeline whose programs run in one process.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "heddle/run/runtime/transport.h"

namespace heddle::run {

class Mailbox : public Transfers {
 public:
  std::unique_ptr<Pending> Send(const Transfer& transfer, at::Tensor tensor) override;
  // Finish waits until the tensor is there. It throws if another coordinate failed.
  std::unique_ptr<Pending> Receive(const Transfer& transfer, at::IntArrayRef sizes,
                                   const at::TensorOptions& type) override;
  // Ends all waits, because a coordinate failed.
  void Close();

 private:
  using Key = std::tuple<int64_t, int64_t, std::string>;
  class Sent;
  class Received;
  at::Tensor Take(const Key& key);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::map<Key, std::deque<at::Tensor>> waiting_;
};

}  // namespace heddle::run
