// Mailbox: the transfers between the coordinates of a pipeline whose programs run in one process.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

class Mailbox {
 public:
  void Put(int64_t from, int64_t to, const std::string& tag, at::Tensor tensor);
  // Waits until the tensor is there. Fails if another coordinate failed.
  Result<at::Tensor> Take(int64_t from, int64_t to, const std::string& tag);
  // Ends all waits, because a coordinate failed.
  void Close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::map<std::tuple<int64_t, int64_t, std::string>, std::deque<at::Tensor>> waiting_;
};

}  // namespace heddle::run
