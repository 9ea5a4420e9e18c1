// Meeting: where the threads of a group of ranks exchange tensors, and the collectives that they do with it.
//
// Every member calls the same collectives in the same order, in forward and in backward; each waits for all. If one gives up, the
// others are told.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/runtime/reducer.h"

namespace heddle::run {

class Meeting {
 public:
  Meeting(int64_t members, const Reducer& reducer);

  // Runs `work` for every member in a thread of its own; for a single one, in this. Throws what the first of them threw.
  void Run(const std::function<void(int64_t member)>& work);

  int64_t members() const { return members_; }
  // The parts of all members along `dim`, put together.
  at::Tensor Gather(int64_t member, const at::Tensor& part, int64_t dim);
  // The sum of all, and of it the part of this member along `dim`.
  at::Tensor ReduceScatter(int64_t member, const at::Tensor& whole, int64_t dim);
  at::Tensor AllReduce(int64_t member, const at::Tensor& whole, ReduceOp op = ReduceOp::kSum);
  // The rows of this member's experts, of all members: by expert, then by member, then as they stood. Rows stand by expert, `counts`
  // of each; members have equal parts of the experts.
  at::Tensor ToExperts(int64_t member, const at::Tensor& rows, const at::Tensor& counts);
  // The way back.
  at::Tensor FromExperts(int64_t member, const at::Tensor& rows, const at::Tensor& counts);
  // How many rows each of this member's experts gets.
  at::Tensor ExpertCounts(int64_t member, const at::Tensor& counts);
  // Tells the others that this member does not come any more.
  void GiveUp(std::exception_ptr failure);

 private:
  // Gives a tensor and gets those of all members.
  std::vector<at::Tensor> Exchange(int64_t member, const at::Tensor& given);
  // The counts of all members: [members, experts].
  at::Tensor AllCounts(int64_t member, const at::Tensor& counts);

  int64_t members_;
  Reducer reducer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> given_;
  std::vector<at::Tensor> all_;
  int64_t arrived_ = 0;
  // How many exchanges are complete.
  int64_t round_ = 0;
  // Of the member that gave up first.
  std::exception_ptr failure_;
};

}  // namespace heddle::run
