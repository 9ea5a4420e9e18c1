#include "heddle/api/train.h"

#include "heddle/api/rank_work.h"

namespace heddle::api {

Result<TrainResult> Train(const TrainOptions& options, TrainObserver& observer) {
  HEDDLE_TRY(std::optional<run::PeerAddress> address, run::PeerAddress::FromEnvironment());
  TrainingJob job(options, observer);
  if (address) {
    HEDDLE_RETURN_IF_ERROR(job.Prepare(address->world_size, address->local_rank));
    auto work = [&](run::Peers& peers) -> Result<TrainResult> {
      HEDDLE_RETURN_IF_ERROR(job.Join(peers));
      HEDDLE_RETURN_IF_ERROR(job.Open());
      return job.Train();
    };
    return WorkAsRank<TrainResult>(*address, options.timeout, work, observer);
  }
  HEDDLE_RETURN_IF_ERROR(job.Prepare(std::nullopt));
  observer.Prepared(job);
  HEDDLE_RETURN_IF_ERROR(job.Open());
  Result<TrainResult> trained = job.Train();
  if (!trained.ok()) observer.Failed(trained.diagnostics());
  return trained;
}

}  // namespace heddle::api
