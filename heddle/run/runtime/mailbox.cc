#include "heddle/run/runtime/mailbox.h"

#include <stdexcept>

#include <fmt/format.h>

namespace heddle::run {

class Mailbox::Sent : public Pending {
 public:
  std::vector<Tensors> Finish() override { return {{}}; }
};

class Mailbox::Received : public Pending {
 public:
  Received(Mailbox& mailbox, Key key) : mailbox_(mailbox), key_(std::move(key)) {}
  std::vector<Tensors> Finish() override { return {{mailbox_.Take(key_)}}; }

 private:
  Mailbox& mailbox_;
  Key key_;
};

std::unique_ptr<Pending> Mailbox::Send(const Transfer& transfer, at::Tensor tensor) {
  {
    std::lock_guard lock(mutex_);
    waiting_[{transfer.from, transfer.to, transfer.tag}].push_back(std::move(tensor));
  }
  changed_.notify_all();
  return std::make_unique<Sent>();
}

std::unique_ptr<Pending> Mailbox::Receive(const Transfer& transfer, at::IntArrayRef,
                                          const at::TensorOptions&) {
  return std::make_unique<Received>(*this, Key(transfer.from, transfer.to, transfer.tag));
}

at::Tensor Mailbox::Take(const Key& key) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || waiting_.contains(key); });
  auto at = waiting_.find(key);
  if (at == waiting_.end())
    throw std::runtime_error(fmt::format("the coordinate of rank {} failed", std::get<0>(key)));
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
