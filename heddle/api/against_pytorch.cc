#include "heddle/api/against_pytorch.h"

#include <cmath>

#include "heddle/run/verify/hashes.h"

namespace heddle {

Status AgainstPyTorch::Start(const std::string& python, const std::string& torch,
                             const run::ParamSource& params,
                             const std::function<void(const std::string&)>& note) {
  if (!leads()) return Done{};
  reference_.emplace(python, torch);
  HEDDLE_TRY(PyTorchLayout layout, LayoutForPyTorch(job_));
  HEDDLE_RETURN_IF_ERROR(WritePyTorchJob(job_, layout, params, dataset_, reference_->folder()));
  HEDDLE_RETURN_IF_ERROR(reference_->Start());
  std::string built = torch.substr(0, torch.find('+'));
  if (!version().empty() && !version().starts_with(built))
    note(fmt::format(
        "remark: {} has torch {}, this program libtorch {}; kernels of different versions may "
        "differ in the last bit",
        python, version(), built));
  return Done{};
}

Result<std::string> AgainstPyTorch::OwnLines(run::GraphRun& run) const {
  std::string lines =
      run::HashLines(run, job_.step.model.params, /*gradients=*/true, /*moments=*/true);
  for (const run::Session* session : run.sessions()) {
    for (size_t at = 0; at < session->ranks().size(); ++at) {
      for (const run::Session::UpdatedBuffer& buffer : session->updated_buffers(at))
        lines += run::HashLine(run.steps(), session->ranks()[at], buffer.name, buffer.tensor);
    }
  }
  int64_t interval = job_.job.validation_interval;
  if (interval == 0 || run.steps() % interval != 0) return lines;
  run::BatchSource held_out =
      BatchesOf(dataset_, run::DataSplit::kHeldOut, job_.step.model.batch.seq_len);
  double sum = 0;
  for (int64_t number = 1; number <= job_.job.validation_steps; ++number) {
    HEDDLE_TRY(double loss, run.Evaluate(held_out, number));
    sum += loss;
  }
  std::string mean = run::HexFloat(sum / static_cast<double>(job_.job.validation_steps));
  for (int64_t rank : run.ranks())
    lines += fmt::format("{{\"rank\":{},\"validation_loss\":\"{}\"}}\n", rank, mean);
  return lines;
}

Result<run::StepHashes> AgainstPyTorch::AllHashes(run::GraphRun& run) const {
  HEDDLE_TRY(std::string own, OwnLines(run));
  std::vector<std::string> all = {own};
  if (peers_ != nullptr) {
    HEDDLE_TRY(all, peers_->Exchange(own));
  }
  run::StepHashes hashes;
  for (const std::string& lines : all) HEDDLE_RETURN_IF_ERROR(hashes.Add(lines));
  return hashes;
}

Result<std::optional<run::HashDifference>> AgainstPyTorch::Compare(const run::StepHashes& own) {
  std::optional<run::HashDifference> found;
  if (leads()) {
    HEDDLE_TRY(run::StepHashes theirs, reference_->NextStep());
    found = run::HashDifference::Find(own, theirs);
  }
  if (peers_ == nullptr) return found;
  HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(found ? "differs" : ""));
  // The other ranks need only the fact: rank 0 prints the report.
  if (!leads() && !all[0].empty()) found.emplace();
  return found;
}

Result<run::VerifyReport> AgainstPyTorch::Train(run::GraphRun& run,
                                                const run::VerifyOptions& options) {
  run::VerifyReport report;
  if (leads()) report.wrong_weights = reference_->wrong_weights();
  if (peers_ != nullptr) {
    HEDDLE_TRY(std::vector<std::string> all, peers_->Exchange(report.wrong_weights));
    report.wrong_weights = all[0];
  }
  while (run.steps() < options.steps && !report.differs() && report.finite) {
    HEDDLE_RETURN_IF_ERROR(run.Step(options.lr(run.steps() + 1)));
    run::StepRow row;
    row.step = run.steps();
    row.loss = run.loss(0).item<double>();
    HEDDLE_TRY(run::StepHashes own, AllHashes(run));
    row.hashes = own.size();
    HEDDLE_TRY(row.hash_difference, Compare(own));
    report.finite = std::isfinite(row.loss);
    HEDDLE_RETURN_IF_ERROR(options.on_step(run, row));
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace heddle
