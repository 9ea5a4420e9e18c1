#include "heddle/cli/stage.h"

#include <algorithm>
#include <ostream>

#include "heddle/base/clock.h"
#include "heddle/base/text.h"
#include "heddle/ir/print.h"
#include "heddle/passes/parallel/parallelize.h"
#include "heddle/passes/passes.h"

namespace heddle {
namespace {
constexpr std::string_view kStages[] = {"captured", "planned", "lowered", "final"};
}

void StageFlags::Declare(Flags& flags) {
  flags.Option("--stage", stage,
               "the graph to write: captured, planned, lowered or final (default: final)");
  flags.Option("--compile.passes", pipeline, "the pipeline after lowering");
  flags.Switch("--parallelism.reduce_before_scatter", reduce_first,
               "HSDP: all-reduce whole gradients and scatter them then; FSDP2 scatters first");
  flags.Switch("--remarks", remarks, "print what was declined, and why, to standard error");
  flags.Switch("--time", time, "print the time of each pass to standard error");
  flags.Option("--dump-dir", manager.dump_dir,
               "write the graph after each pass into this directory");
}

Result<StageReport> StageFlags::Run(Module& module, std::string_view plan, bool want_graph) const {
  if (std::ranges::find(kStages, Stage()) == std::end(kStages)) {
    return Error(Diag::kBadChoice,
                 "`{}` is not a stage; there are captured, planned, lowered and final{}", stage,
                 NearestHint(stage, kStages));
  }
  HEDDLE_TRY(Pipeline after, ParsePipeline(pipeline, Passes()));
  HEDDLE_TRY(Pipeline planning, ParsePipeline(PlanningPipeline(plan), Passes()));
  HEDDLE_TRY(Pipeline lowering, ParsePipeline(LoweringPipeline(reduce_first), Passes()));
  StageReport report;
  Nanos printing;
  auto reach = [&](std::string_view name, const Pipeline& passes) -> Status {
    ManagerOptions options = manager;
    options.passes_before = static_cast<int64_t>(report.passes.size());
    HEDDLE_TRY(RunReport one, RunPipeline(module, passes, options));
    for (PassRecord& record : one.passes) report.passes.push_back(std::move(record));
    Clock clock;
    if (want_graph && Stage() == name) report.graph = heddle::Print(module);
    printing += clock.Elapsed();
    return Done{};
  };
  HEDDLE_RETURN_IF_ERROR(reach("captured", {}));
  printing = {};
  Clock clock;
  HEDDLE_RETURN_IF_ERROR(reach("planned", planning));
  HEDDLE_RETURN_IF_ERROR(reach("lowered", lowering));
  report.parallelize = clock.Elapsed() - printing;
  HEDDLE_RETURN_IF_ERROR(reach("final", after));
  report.cleaning = clock.Elapsed() - printing - report.parallelize;
  return report;
}

void StageFlags::Print(const StageReport& report, const Streams& streams) const {
  if (time) streams.err << "--- time\n";
  for (const PassRecord& record : report.passes) {
    if (time)
      streams.err << fmt::format("{:<24} {:>8.1f} ms\n",
                                 record.pass.substr(0, record.pass.find('{')),
                                 Seconds(record.time) * 1e3);
  }
  if (remarks) streams.err << "--- remarks\n";
  for (const PassRecord& record : report.passes) {
    for (const Remark& remark : record.remarks) {
      if (remarks) streams.err << Format(remark) << "\n";
    }
  }
}

}  // namespace heddle
