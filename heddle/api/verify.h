// api::Verify: trains a job in two ways and compares every bit.
#pragma once

#include "heddle/api/verification.h"

namespace heddle::api {

// If RANK is set, this process is that rank of a job, as torchrun starts it. Otherwise it has all
// ranks.
Result<run::VerifyReport> Verify(const VerificationOptions& options, VerifyObserver& observer);

}  // namespace heddle::api
