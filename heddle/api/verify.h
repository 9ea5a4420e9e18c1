// api::Verify: trains a job in two ways and compares every bit.
#pragma once

#include "heddle/api/verification.h"

namespace heddle::api {

// If RANK is set, as by torchrun, this process is that rank of a job. Otherwise it has all ranks.
Result<run::VerifyReport> Verify(const VerificationOptions& options, VerifyObserver& observer);

}  // namespace heddle::api
