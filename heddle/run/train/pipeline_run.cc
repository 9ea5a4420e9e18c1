#include "heddle/run/train/pipeline_run.h"

#include <thread>

#include <ATen/Parallel.h>

#include "heddle/core/ir/program.h"

namespace heddle::run {

Result<std::unique_ptr<PipelineRun>> PipelineRun::Make(const Model& model,
                                                       const StepModules& modules,
                                                       const SessionOptions& options) {
  const Mesh& mesh = modules.step->mesh;
  std::optional<AxisId> axis = ProgramAxis(*modules.step);
  HEDDLE_CHECK(axis.has_value(), "the coordinates of a pipeline share a program");
  std::unique_ptr<PipelineRun> run(new PipelineRun());
  int64_t count = mesh.ranks();
  run->places_.resize(static_cast<size_t>(count));
  for (int64_t coordinate = 0; coordinate < mesh[*axis].size; ++coordinate) {
    SessionOptions own = options;
    own.program.transfers = run->mailbox_;
    own.program.ranks.clear();
    for (int64_t rank = 0; rank < count; ++rank) {
      if (mesh.Coordinate(rank, *axis) != coordinate) continue;
      run->places_[static_cast<size_t>(rank)] = {run->sessions_.size(), own.program.ranks.size()};
      own.program.ranks.push_back(rank);
    }
    own.batches = run->InTurn(options.batches);
    // Coordinates run on threads, and have the same to report.
    if (coordinate > 0) own.notice = [](const std::string&) {};
    HEDDLE_TRY(Session session, Session::Make(model, modules, own));
    run->sessions_.push_back(std::move(session));
  }
  for (int64_t rank = 0; rank < count; ++rank) run->ranks_.push_back(rank);
  return run;
}

BatchSource PipelineRun::InTurn(const BatchSource& batches) const {
  return [batches, reading = reading_.get()](int64_t number, int64_t first_row, int64_t rows) {
    std::lock_guard lock(*reading);
    return batches(number, first_row, rows);
  };
}

Status PipelineRun::OnThreads(const std::function<Status(size_t coordinate)>& work) {
  std::mutex failing;
  std::optional<Failure> first;
  auto run = [&](size_t coordinate) {
    Status status = work(coordinate);
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
      run(c);
    });
  }
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (first) return *std::move(first);
  return Done{};
}

Status PipelineRun::Step(double lr, const Watcher& watch) {
  return OnThreads([&](size_t c) { return sessions_[c].Step(lr, watch); });
}

void PipelineRun::Remember() {
  for (Session& session : sessions_) session.Remember();
}

void PipelineRun::UndoStep() {
  for (Session& session : sessions_) session.UndoStep();
}

Result<double> PipelineRun::Evaluate(const BatchSource& batches, int64_t number,
                                     const Watcher& watch) {
  double loss = 0;
  BatchSource in_turn = InTurn(batches);
  HEDDLE_RETURN_IF_ERROR(OnThreads([&](size_t c) -> Status {
    HEDDLE_TRY(double own, sessions_[c].Evaluate(in_turn, number, watch));
    if (c == 0) loss = own;
    return Done{};
  }));
  return loss;
}

double PipelineRun::data_seconds() const {
  double longest = 0;
  for (const Session& session : sessions_) longest = std::max(longest, session.data_seconds());
  return longest;
}

std::vector<const Session*> PipelineRun::sessions() const {
  std::vector<const Session*> all;
  for (const Session& session : sessions_) all.push_back(&session);
  return all;
}

}  // namespace heddle::run
