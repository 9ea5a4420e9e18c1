// Flags of the commands that compile a captured graph.
#pragma once

#include "heddle/cli/cli.h"
#include "heddle/cli/flags/flags.h"
#include "heddle/search/compile_settings.h"

namespace heddle {

// --time-limit of the commands that find plans.
struct TimeLimitFlag {
  std::string text = {};

  // `who` is the command or search that stops, for the help.
  void Declare(Flags& flags, std::string_view who);
  // The time limit with its amount of work; if the flag is not given, only the default amount of
  // work.
  Result<search::WorkAmount> Parse() const;
};

// --stage of the commands that write a graph.
void DeclareStage(Flags& flags, compile::Stage& stage);

struct CompileFlags : search::CompileSettings {
  bool remarks = false;
  bool time = false;

  // `with_budget`: adds --memory.budget, as the limit of the whole step.
  void Declare(Flags& flags, bool with_budget = true);
  // Prints remarks and times to standard error if requested.
  void Print(const compile::CompileReport& report, const Streams& streams) const;
  // Prints flags without effect to standard error, unless --remarks lists them.
  void PrintNotes(const compile::CompileReport& report, const Streams& streams) const {
    if (!remarks) heddle::PrintNotes(report.notes, streams);
  }
};

}  // namespace heddle
