// Within: a deadline for calls of c10d that may never return.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

namespace heddle::run {

// Runs `work` on its own thread. Returns its result, or nullopt if it takes longer than `timeout`.
// In that case the thread is abandoned, so `work` must own everything that it uses.
template <typename T>
std::optional<T> Within(std::chrono::milliseconds timeout, std::function<T()> work) {
  auto promise = std::make_shared<std::promise<T>>();
  std::future<T> result = promise->get_future();
  std::thread([promise, work = std::move(work)] {
    try {
      promise->set_value(work());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (result.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace heddle::run
