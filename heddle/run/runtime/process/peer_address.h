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
  // Whether rank 0 opens the store. Otherwise the launcher has opened it.
  bool rank_0_serves = true;
  // Number of restarts of the job by the launcher. The ranks meet again after each.
  std::string attempt = "0";

  // Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them. Returns
  // nullopt if RANK is not set. Fails if they are inconsistent.
  static Result<std::optional<PeerAddress>> FromEnvironment();
};

}  // namespace heddle::run
