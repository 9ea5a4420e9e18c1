// PipelineRun: trains a pipeline whose coordinates all run in this process. Each coordinate is a
// session on its own thread. Bits do not depend on which thread is faster, because every transfer
// has a name.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "heddle/run/runtime/mailbox.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

class PipelineRun final : public GraphRun {
 public:
  // The graphs of each module are those of the coordinates. `model` must outlive the run.
  static Result<std::unique_ptr<PipelineRun>> Make(const Model& model, const StepModules& modules,
                                                   const SessionOptions& options);

  using GraphRun::Evaluate;
  using GraphRun::Step;
  Status Step(double lr, const Watcher& watch) override;
  int64_t steps() const override { return sessions_[0].steps(); }
  std::span<const int64_t> ranks() const override { return ranks_; }
  at::Tensor loss(size_t at) const override { return SessionOf(at).loss(PlaceOf(at)); }
  at::Tensor grad_norm(size_t at) const override { return SessionOf(at).grad_norm(PlaceOf(at)); }
  at::Tensor state(StateKind kind, size_t at, size_t param) const override {
    return SessionOf(at).state(kind, PlaceOf(at), param);
  }
  void Remember() override;
  void UndoStep() override;
  Result<double> Evaluate(const BatchSource& batches, int64_t number,
                          const Watcher& watch) override;
  // Every coordinate has the loss, the norm and the metrics.
  void StartReading() override { sessions_[0].StartReading(); }
  std::pair<double, std::optional<double>> Read() override { return sessions_[0].Read(); }
  bool can_run_ahead() const override { return false; }
  const std::vector<StepMetric>& metrics() const override { return sessions_[0].metrics(); }
  // The longest time of a coordinate.
  double data_seconds() const override;
  std::vector<const Session*> sessions() const override;

 private:
  PipelineRun() = default;
  const Session& SessionOf(size_t at) const { return sessions_[places_[at].first]; }
  size_t PlaceOf(size_t at) const { return places_[at].second; }
  // Sources of batches need not be safe for threads.
  BatchSource InTurn(const BatchSource& batches) const;
  // Runs `work` for all coordinates at the same time. Returns the first failure.
  Status OnThreads(const std::function<Status(size_t coordinate)>& work);

  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::unique_ptr<std::mutex> reading_ = std::make_unique<std::mutex>();
  // By coordinate.
  std::vector<Session> sessions_;
  // All ranks, and the session and position of each.
  std::vector<int64_t> ranks_;
  std::vector<std::pair<size_t, size_t>> places_;
};

}  // namespace heddle::run
