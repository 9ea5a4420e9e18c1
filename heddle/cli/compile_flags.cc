#include "heddle/cli/compile_flags.h"

#include <ostream>

#include "heddle/base/clock.h"

namespace heddle {

void CompileFlags::Declare(Flags& flags) {
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

Result<CompileOptions> CompileFlags::Options(std::string plan, bool want_text) const {
  CompileOptions options;
  options.plan = std::move(plan);
  options.pipeline = pipeline;
  options.reduce_first = reduce_first;
  options.manager = manager;
  HEDDLE_TRY(Stage asked, ParseStage(stage.empty() ? "final" : stage));
  if (want_text) options.print = asked;
  return options;
}

void CompileFlags::Print(const CompileReport& report, const Streams& streams) const {
  if (time) {
    streams.err << "--- time\n";
    for (const PassRecord& record : report.passes) {
      streams.err << fmt::format("{:<24} {:>8.1f} ms\n",
                                 record.pass.substr(0, record.pass.find('{')),
                                 Seconds(record.time) * 1e3);
    }
  }
  if (!remarks) return;
  streams.err << "--- remarks\n";
  for (const PassRecord& record : report.passes) {
    for (const Remark& remark : record.remarks) streams.err << Format(remark) << "\n";
  }
}

}  // namespace heddle
