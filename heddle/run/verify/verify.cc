#include "heddle/run/verify/verify.h"

#include <cmath>

#include "heddle/compile/manager/manager.h"

namespace heddle::run {
namespace {

template <typename Run>
Result<std::unique_ptr<Run>> TrainedFor(const std::function<Result<std::unique_ptr<Run>>()>& make,
                                        int64_t steps, const std::function<double(int64_t)>& lr) {
  HEDDLE_TRY(std::unique_ptr<Run> run, make());
  for (int64_t step = 1; step <= steps; ++step) HEDDLE_RETURN_IF_ERROR(run->Step(lr(step)));
  return run;
}

// Compares all ranks, in this process and others.
Result<Comparison> CompareAll(const TrainingRun& a, const TrainingRun& b,
                              const VerifyOptions& options) {
  Comparison own = Compare(a, b, options.params);
  return options.share_comparison ? options.share_comparison(std::move(own)) : own;
}

Result<std::optional<NodeFinding>> FindOrigin(const VerifyOptions& options, const StepRow& row) {
  if (!row.comparison.first) {
    // Starts at the first step: the optimizer can break parameters one step before the loss shows
    // it.
    HEDDLE_TRY(std::unique_ptr<GraphRun> run, options.graph());
    return FirstNotFinite(*run, options.lr, row.step);
  }
  HEDDLE_TRY(std::unique_ptr<GraphRun> run, TrainedFor(options.graph, row.step - 1, options.lr));
  if (options.other_graph) {
    HEDDLE_TRY(std::unique_ptr<GraphRun> other,
               TrainedFor(options.other_graph, row.step - 1, options.lr));
    return FirstAgainstGraph(*run, *other, options.lr(row.step));
  }
  HEDDLE_TRY(std::unique_ptr<TrainingRun> eager,
             TrainedFor(options.eager, row.step - 1, options.lr));
  return FirstAgainstEager(*run, *eager, options.lr(row.step), options.params,
                           *row.comparison.first);
}

}  // namespace

Result<VerifyReport> Verify(const VerifyOptions& options) {
  VerifyReport report;
  HEDDLE_TRY(std::unique_ptr<GraphRun> run, options.graph());
  std::unique_ptr<TrainingRun> other;
  if (options.eager) {
    HEDDLE_TRY(other, options.eager());
  }
  if (options.other_graph) {
    HEDDLE_TRY(other, options.other_graph());
  }
  while (run->steps() < options.steps && !report.differs() && report.finite) {
    double lr = options.lr(run->steps() + 1);
    HEDDLE_RETURN_IF_ERROR(run->Step(lr));
    if (other) HEDDLE_RETURN_IF_ERROR(other->Step(lr));
    StepRow row;
    row.step = run->steps();
    row.loss = run->loss(0).item<double>();
    if (other) {
      HEDDLE_TRY(row.comparison, CompareAll(*run, *other, options));
    }
    report.finite = std::isfinite(row.loss);
    if (options.on_step) HEDDLE_RETURN_IF_ERROR(options.on_step(*run, row));
    report.rows.push_back(std::move(row));
  }
  if (report.finite && !report.differs()) return report;
  // Frees memory for the two runs that repeat it.
  run.reset();
  other.reset();
  HEDDLE_TRY(report.origin, FindOrigin(options, report.rows.back()));
  if (options.share_origin) {
    HEDDLE_TRY(report.origin, options.share_origin(std::move(report.origin)));
  }
  return report;
}

Result<std::optional<std::string>> FirstDifferingPass(
    const Module& before, const compile::Pipeline& pipeline, const compile::ManagerOptions& manager,
    const VerifyOptions& options, int64_t steps,
    const std::function<Result<std::unique_ptr<GraphRun>>(const Module&)>& make) {
  auto train = [&](const Module& module) {
    return TrainedFor<GraphRun>([&] { return make(module); }, steps, options.lr);
  };
  HEDDLE_TRY(std::unique_ptr<GraphRun> reference, train(before));
  std::vector<std::string> names;
  auto differs_after = [&](int64_t passes) -> Result<bool> {
    Module module = before;
    compile::ManagerOptions some = manager;
    some.stop_after = passes;
    HEDDLE_TRY(compile::RunReport report, compile::RunPipeline(module, pipeline, some));
    if (passes < 0) {
      for (const compile::PassRecord& record : report.passes) names.push_back(record.pass);
    }
    HEDDLE_TRY(std::unique_ptr<GraphRun> session, train(module));
    HEDDLE_TRY(Comparison comparison, CompareAll(*session, *reference, options));
    return comparison.first.has_value();
  };
  HEDDLE_TRY(bool differs, differs_after(-1));
  if (!differs) return std::optional<std::string>();
  // Binary search: the bits are the same after `same` passes and differ after `other`.
  int64_t same = 0;
  auto other = static_cast<int64_t>(names.size());
  while (other - same > 1) {
    int64_t middle = same + (other - same) / 2;
    HEDDLE_TRY(bool there, differs_after(middle));
    (there ? other : same) = middle;
  }
  return std::optional(fmt::format("{} (pass {} of {})", names[static_cast<size_t>(other - 1)],
                                   other, names.size()));
}

}  // namespace heddle::run
