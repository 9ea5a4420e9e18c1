#include "heddle/run/runtime/process/group.h"

#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <stdexcept>
#endif

namespace heddle::run {

GroupPtr MakeNcclGroup([[maybe_unused]] const StorePtr& store, [[maybe_unused]] int64_t rank,
                       [[maybe_unused]] int64_t size,
                       [[maybe_unused]] std::chrono::milliseconds timeout) {
#ifdef USE_C10D_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank),
                                                     static_cast<int>(size), options);
#else
  throw std::runtime_error("this program was built without NCCL");
#endif
}

}  // namespace heddle::run
