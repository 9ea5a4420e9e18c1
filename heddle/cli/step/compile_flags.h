// The flags of the commands that compile a captured graph to the one that runs.
#pragma once

#include "heddle/cli/cli.h"
#include "heddle/cli/flags/flags.h"
#include "heddle/search/compile_settings.h"

namespace heddle {

// --time-limit of the commands that find plans.
struct TimeLimitFlag {
  std::string text = {};

  // `who` stops then.
  void Declare(Flags& flags, std::string_view who);
  // So much time, and the work of it; unless it is given, the work alone that is usual.
  Result<search::Allowance> Parse() const;
};

// --stage of the commands that write a graph.
void DeclareStage(Flags& flags, compile::Stage& stage);

struct CompileFlags : search::CompileSettings {
  bool remarks = false;
  bool time = false;

  // With --memory.budget for commands in which it limits the whole step.
  void Declare(Flags& flags, bool with_budget = true);
  // Remarks and times, to standard error, where asked for.
  void Print(const compile::CompileReport& report, const Streams& streams) const;
  // Flags that had no effect, to standard error; --remarks lists them already.
  void PrintNotes(const compile::CompileReport& report, const Streams& streams) const {
    if (!remarks) heddle::PrintNotes(report.notes, streams);
  }
};

}  // namespace heddle
