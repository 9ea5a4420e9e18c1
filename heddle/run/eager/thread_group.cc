#include "heddle/run/eager/thread_group.h"

#include <stdexcept>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>

#include "heddle/run/eager/sharded_state.h"

namespace heddle::run {

ThreadGroup::ThreadGroup(int64_t members, const Reducer& reducer)
    : members_(members), reducer_(reducer), given_(static_cast<size_t>(members)) {}

void ThreadGroup::Run(const std::function<void(int64_t member)>& work) {
  if (members_ == 1) return work(0);
  std::vector<std::thread> threads;
  for (int64_t member = 0; member < members_; ++member) {
    threads.emplace_back([&, member] {
      // A new thread starts with one ATen thread per core.
      at::init_num_threads();
      // Otherwise all backwards on a GPU share a thread, which a member that waits would block.
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      try {
        work(member);
      } catch (...) {
        GiveUp(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadGroup::GiveUp(std::exception_ptr failure) {
  std::lock_guard lock(mutex_);
  // Later failures are consequences of the first.
  if (!failure_) failure_ = std::move(failure);
  changed_.notify_all();
}

std::vector<at::Tensor> ThreadGroup::Exchange(int64_t member, const at::Tensor& given) {
  std::unique_lock lock(mutex_);
  given_[static_cast<size_t>(member)] = given;
  int64_t round = round_;
  if (++arrived_ == members_) {
    all_ = given_;
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  }
  // Waits until all members have the result: the next exchange overwrites all_, and begins only
  // when all members have called it.
  changed_.wait(lock, [&] { return round_ != round || failure_; });
  if (round_ == round) throw std::runtime_error("another rank has failed");
  return all_;
}

at::Tensor ThreadGroup::Gather(int64_t member, const at::Tensor& part, int64_t dim) {
  return at::cat(Exchange(member, part), dim);
}

at::Tensor ThreadGroup::ReduceScatter(int64_t member, const at::Tensor& whole, int64_t dim) {
  // One row per member: its part, padded with zeros to the longest.
  at::Tensor longest = EagerChunk(whole, dim, members_, 0);
  std::vector<int64_t> sizes = longest.sizes().vec();
  sizes.insert(sizes.begin(), members_);
  at::Tensor payload = at::zeros(sizes, whole.options());
  for (int64_t to = 0; to < members_; ++to) {
    at::Tensor part = EagerChunk(whole, dim, members_, to);
    payload[to].narrow(dim, 0, part.size(dim)).copy_(part);
  }
  std::vector<at::Tensor> payloads = Exchange(member, payload.view({-1}));
  at::Tensor sum = reducer_.Reduce(payloads, ReduceOp::kSum, /*rows=*/true).view(sizes);
  int64_t own = EagerChunk(whole, dim, members_, member).size(dim);
  return sum[member].narrow(dim, 0, own).clone(at::MemoryFormat::Contiguous);
}

at::Tensor ThreadGroup::AllReduce(int64_t member, const at::Tensor& whole, ReduceOp op) {
  std::vector<at::Tensor> payloads = Exchange(member, whole.contiguous().view({-1}));
  return reducer_.Reduce(payloads, op, /*rows=*/false).view(whole.sizes());
}

at::Tensor ThreadGroup::AllCounts(int64_t member, const at::Tensor& counts) {
  return at::stack(Exchange(member, counts));
}

at::Tensor ThreadGroup::ExpertCounts(int64_t member, const at::Tensor& counts) {
  return EagerChunk(AllCounts(member, counts), 1, members_, member).sum(0);
}

at::Tensor ThreadGroup::ToExperts(int64_t member, const at::Tensor& rows,
                                  const at::Tensor& counts) {
  at::Tensor table = AllCounts(member, counts);
  std::vector<at::Tensor> all = Exchange(member, rows);
  int64_t own = counts.numel() / members_;
  std::vector<at::Tensor> parts;
  for (int64_t expert = member * own; expert < (member + 1) * own; ++expert) {
    for (int64_t from = 0; from < members_; ++from) {
      at::Tensor sent = table[from];
      int64_t begin = sent.narrow(0, 0, expert).sum().item<int64_t>();
      parts.push_back(
          all[static_cast<size_t>(from)].narrow(0, begin, sent[expert].item<int64_t>()));
    }
  }
  return at::cat(parts);
}

at::Tensor ThreadGroup::FromExperts(int64_t member, const at::Tensor& rows,
                                    const at::Tensor& counts) {
  at::Tensor table = AllCounts(member, counts);
  std::vector<at::Tensor> all = Exchange(member, rows);
  int64_t own = counts.numel() / members_;
  std::vector<at::Tensor> parts;
  for (int64_t expert = 0; expert < counts.numel(); ++expert) {
    // The owner of the expert, and the row at which this member's rows begin there: after the
    // owner's earlier experts, and after the rows of earlier members.
    int64_t there = expert / own;
    int64_t begin = table.narrow(1, there * own, expert - there * own).sum().item<int64_t>() +
                    table.narrow(0, 0, member).select(1, expert).sum().item<int64_t>();
    parts.push_back(
        all[static_cast<size_t>(there)].narrow(0, begin, table[member][expert].item<int64_t>()));
  }
  return at::cat(parts);
}

}  // namespace heddle::run
