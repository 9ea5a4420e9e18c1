#include "heddle/api/verify.h"

#include "heddle/api/rank_work.h"

namespace heddle::api {

Result<run::VerifyReport> Verify(const VerificationOptions& options, VerifyObserver& observer) {
  HEDDLE_TRY(std::optional<run::PeerAddress> address, run::PeerAddress::FromEnvironment());
  Verification verification(options, observer);
  if (address) {
    HEDDLE_RETURN_IF_ERROR(verification.Prepare(address->world_size, address->local_rank));
    auto work = [&](run::Peers& peers) -> Result<run::VerifyReport> {
      HEDDLE_RETURN_IF_ERROR(verification.Join(peers));
      HEDDLE_RETURN_IF_ERROR(verification.StartReference());
      return verification.Train();
    };
    return WorkAsRank<run::VerifyReport>(*address, options.timeout, work, observer);
  }
  HEDDLE_RETURN_IF_ERROR(verification.Prepare(std::nullopt));
  HEDDLE_RETURN_IF_ERROR(verification.StartReference());
  Result<run::VerifyReport> report = verification.Train();
  if (!report.ok()) observer.Failed(report.diagnostics());
  return report;
}

}  // namespace heddle::api
