// PeerAddress: the rank of this process in its job, and the address of the job's store.
#pragma once

#include <optional>
#include <string>

#include "heddle/core/base/result.h"

namespace heddle::run {

struct PeerAddress {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;
  std::string host = "127.0.0.1";
  int64_t port = 29500;
  // Whether rank 0 opens the store. Otherwise the launcher has opened it, and may restart the ranks
  // with the same store.
  bool rank_0_serves = true;

  // Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them. Returns
  // nullopt if RANK is not set. Fails if they are inconsistent.
  static Result<std::optional<PeerAddress>> FromEnvironment();
};

}  // namespace heddle::run
