#include "heddle/run/runtime/process/group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace heddle::run {

GroupPtr MakeGlooGroup(const StorePtr& store, int64_t rank, int64_t size,
                       std::chrono::milliseconds timeout,
                       const std::vector<std::string>& addresses) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  for (const std::string& address : addresses)
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(address, /*lazyInit=*/false));
  // With one thread, the launches of a communicator complete in order.
  options->threads = 1;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank),
                                                     static_cast<int>(size), options);
}

}  // namespace heddle::run
