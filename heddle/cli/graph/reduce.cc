// heddle reduce: finds the smallest graph on which a pipeline still fails in the same way.
#include <ostream>

#include "heddle/cli/commands.h"
#include "heddle/compile/manager/reduce.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

struct ReduceCommand {
  static constexpr const char* kName = "reduce";
  static constexpr const char* kSummary =
      "Shrink a graph while a pipeline still fails on it with a given error, or crashes";
  static constexpr const char* kNote =
      "Each trial runs in its own process. With --error a trial fails if it prints the text, with "
      "--crash if its process dies.";
  static constexpr const char* kExamples =
      "heddle reduce failing.hd --pipeline=fsdp --error='kind mismatch' -o small.hd\n"
      "heddle reduce failing.hd --pipeline=fsdp --crash -o small.hd";

  std::string file;
  std::string pipeline;
  std::string error;
  bool crash = false;
  std::string output;
  int64_t seconds = 10;

  void Declare(Flags& flags);
  Status Run(const Streams& streams) const;
};

void ReduceCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file, "graph that fails, or - for standard input");
  flags.Required("--pipeline", pipeline, "pipeline that fails on it");
  flags.Option("--error", error, "text that the error must contain");
  flags.Switch("--crash", crash,
               "look for a crash; with --error, for a crash that prints the text");
  flags.Option("-o,--output=FILE", output, "file for the reduced graph (default: standard output)");
  flags.Option("--trial-seconds", seconds,
               "time limit of a trial, in seconds; a slower trial does not count as failing",
               {.least = 1, .most = 86'400});
}

Status ReduceCommand::Run(const Streams& streams) const {
  if (error.empty() && !crash)
    return Error(Diag::kUsage, "`heddle reduce` needs --error with a text, or --crash");
  HEDDLE_TRY(compile::Pipeline parsed, compile::ParsePipeline(pipeline, compile::Passes()));
  HEDDLE_TRY(Module module, LoadModule(file, streams));
  compile::ReduceModuleOptions options;
  options.error = error;
  options.crash = crash;
  options.trial_limit = {seconds * 1'000'000'000};
  options.progress = [&](size_t nodes, size_t trials) {
    streams.err << fmt::format("{} after {}\n", Counted(nodes, "node"), Counted(trials, "trial"))
                << std::flush;
  };
  HEDDLE_TRY(Module reduced, compile::ReduceModule(module, parsed, options));
  return WriteGraph(output, Print(reduced), streams);
}

}  // namespace

void AddReduce(CommandSet& commands) { commands.Add<ReduceCommand>(); }

}  // namespace heddle
