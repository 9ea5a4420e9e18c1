#include "heddle/run/runtime/mailbox.h"

namespace heddle::run {

void Mailbox::Put(int64_t from, int64_t to, const std::string& tag, at::Tensor tensor) {
  {
    std::lock_guard lock(mutex_);
    waiting_[{from, to, tag}].push_back(std::move(tensor));
  }
  changed_.notify_all();
}

Result<at::Tensor> Mailbox::Take(int64_t from, int64_t to, const std::string& tag) {
  std::unique_lock lock(mutex_);
  std::tuple key(from, to, tag);
  changed_.wait(lock, [&] { return closed_ || waiting_.contains(key); });
  auto at = waiting_.find(key);
  if (at == waiting_.end())
    return Error(Diag::kRunFault, "rank {} waits for `{}` of rank {}, whose coordinate failed", to,
                 tag, from);
  at::Tensor tensor = std::move(at->second.front());
  at->second.pop_front();
  if (at->second.empty()) waiting_.erase(at);
  return tensor;
}

void Mailbox::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace heddle::run
