#include "heddle/run/train/pipeline_run.h"

#include <thread>

#include <ATen/Parallel.h>

#include "heddle/core/ir/program.h"

namespace heddle::run {

Result<std::unique_ptr<PipelineRun>> PipelineRun::Make(const Model& model, const Module& step,
                                                       const SessionOptions& options) {
  std::optional<AxisId> axis = ProgramAxis(step);
  HEDDLE_CHECK(axis.has_value(), "the coordinates of a pipeline share a program");
  std::unique_ptr<PipelineRun> run(new PipelineRun());
  int64_t count = step.mesh.ranks();
  run->places_.resize(static_cast<size_t>(count));
  for (int64_t coordinate = 0; coordinate < step.mesh[*axis].size; ++coordinate) {
    SessionOptions own = options;
    own.program.mailbox = run->mailbox_;
    own.program.ranks.clear();
    for (int64_t rank = 0; rank < count; ++rank) {
      if (step.mesh.Coordinate(rank, *axis) != coordinate) continue;
      run->places_[static_cast<size_t>(rank)] = {run->sessions_.size(), own.program.ranks.size()};
      own.program.ranks.push_back(rank);
    }
    own.batches = [batches = options.batches, reading = run->reading_.get()](
                      int64_t number, int64_t first_row, int64_t rows) {
      std::lock_guard lock(*reading);
      return batches(number, first_row, rows);
    };
    HEDDLE_TRY(Session session, Session::Make(model, step, own));
    run->sessions_.push_back(std::move(session));
  }
  for (int64_t rank = 0; rank < count; ++rank) run->ranks_.push_back(rank);
  return run;
}

Status PipelineRun::Step(double lr) {
  std::mutex failing;
  std::optional<Failure> first;
  auto step = [&](Session& session) {
    Status status = session.Step(lr);
    if (status.ok()) return;
    std::lock_guard lock(failing);
    if (!first) first = std::move(status).failure();
    mailbox_->Close();
  };
  std::vector<std::thread> threads;
  for (size_t c = 1; c < sessions_.size(); ++c) {
    threads.emplace_back([&, c] {
      // A new thread starts with one ATen thread per core.
      at::init_num_threads();
      step(sessions_[c]);
    });
  }
  step(sessions_[0]);
  for (std::thread& thread : threads) thread.join();
  if (first) return *std::move(first);
  return Done{};
}

}  // namespace heddle::run
