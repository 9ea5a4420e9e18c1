// ThreadGroup: runs a group of ranks as threads, and provides their collectives.
//
// All members call the same collectives in the same order, in forward and in backward. A collective
// waits for all members. If a member gives up, the collectives of the others throw.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/runtime/reducer.h"

namespace heddle::run {

class ThreadGroup {
 public:
  ThreadGroup(int64_t members, const Reducer& reducer);

  // Runs `work` for every member in its own thread; runs a single member in this thread. Rethrows
  // the first exception.
  void Run(const std::function<void(int64_t member)>& work);

  int64_t members() const { return members_; }
  // Concatenates the parts of all members along `dim`.
  at::Tensor Gather(int64_t member, const at::Tensor& part, int64_t dim);
  // Sums the tensors of all members, and returns this member's part of the sum along `dim`.
  at::Tensor ReduceScatter(int64_t member, const at::Tensor& whole, int64_t dim);
  at::Tensor AllReduce(int64_t member, const at::Tensor& whole, ReduceOp op = ReduceOp::kSum);
  // Sends rows to their experts. `rows` are sorted by expert, with `counts` rows for each; members
  // have equal parts of the experts. Returns the rows for this member's experts, sorted by expert,
  // then by sending member, then in their original order.
  at::Tensor ToExperts(int64_t member, const at::Tensor& rows, const at::Tensor& counts);
  // The inverse of ToExperts.
  at::Tensor FromExperts(int64_t member, const at::Tensor& rows, const at::Tensor& counts);
  // Returns the number of rows for each of this member's experts.
  at::Tensor ExpertCounts(int64_t member, const at::Tensor& counts);
  // Reports that this member has failed, so that the others stop waiting.
  void GiveUp(std::exception_ptr failure);

 private:
  // Exchanges tensors: passes one and returns those of all members.
  std::vector<at::Tensor> Exchange(int64_t member, const at::Tensor& given);
  // Returns the counts of all members: [members, experts].
  at::Tensor AllCounts(int64_t member, const at::Tensor& counts);

  int64_t members_;
  Reducer reducer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> given_;
  std::vector<at::Tensor> all_;
  int64_t arrived_ = 0;
  // Number of complete exchanges.
  int64_t round_ = 0;
  // The failure of the member that gave up first.
  std::exception_ptr failure_;
};

}  // namespace heddle::run
