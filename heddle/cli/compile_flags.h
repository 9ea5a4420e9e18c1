// The flags of the commands that take a captured graph to the one that runs.
#pragma once

#include "heddle/cli/cli.h"
#include "heddle/cli/flags.h"
#include "heddle/compile/compile.h"

namespace heddle {

struct CompileFlags {
  // Empty: final.
  std::string stage;
  std::string pipeline = "clean";
  bool reduce_first = false;
  bool remarks = false;
  bool time = false;
  ManagerOptions manager;

  void Declare(Flags& flags);
  // For a plan, given as its text. With `want_text` the report has the graph of the stage asked for.
  Result<CompileOptions> Options(std::string plan, bool want_text) const;
  // Remarks and times, to standard error, where asked for.
  void Print(const CompileReport& report, const Streams& streams) const;
};

}  // namespace heddle
