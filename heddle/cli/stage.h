// The stages from a captured graph to the one that runs, for the commands that go through them.
#pragma once

#include "heddle/base/units.h"
#include "heddle/cli/flags.h"
#include "heddle/pass/manager.h"

namespace heddle {

struct StageReport {
  std::vector<PassRecord> passes;
  Nanos parallelize;
  Nanos cleaning;
  // The graph of the stage asked for, as text, if it was wanted.
  std::string graph;
};

struct StageFlags {
  // Empty: final.
  std::string stage;
  std::string pipeline = "clean";
  bool reduce_first = false;
  bool remarks = false;
  bool time = false;
  ManagerOptions manager;

  void Declare(Flags& flags);
  // Takes `module` through all stages: `captured`, `planned` (placements and redistributions), `lowered` (collectives and
  // local sizes), `final` (after the pipeline). `plan` is the text of a plan.
  Result<StageReport> Run(Module& module, std::string_view plan, bool want_graph) const;
  // The stage that the user asked for.
  std::string_view Stage() const { return stage.empty() ? "final" : std::string_view(stage); }
  // Remarks and times, to standard error, where asked for.
  void Print(const StageReport& report, const Streams& streams) const;
};

}  // namespace heddle
