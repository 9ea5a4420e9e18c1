// PeerAddress: which rank of a job this process is, and where its ranks meet.
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
  // Whether rank 0 opens the store. A launcher may have done so.
  bool rank_0_serves = true;
  // How often the launcher has started the job again: each time its ranks meet anew.
  std::string attempt = "0";

  // From RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them. Nothing where no RANK is set; an error
  // where they make no sense.
  static Result<std::optional<PeerAddress>> FromEnvironment();
};

}  // namespace heddle::run
