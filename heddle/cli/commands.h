// The commands that need no libtorch. Each has its own file; command_set.h describes commands.
#pragma once

#include "heddle/cli/command_set.h"

namespace heddle {

// One function per command, so that a command's type stays in its file.
void AddCalibrate(CommandSet& commands);
void AddCheck(CommandSet& commands);
void AddCheckpoint(CommandSet& commands);
void AddCompletion(CommandSet& commands);
void AddDiff(CommandSet& commands);
void AddDoc(CommandSet& commands);
void AddImport(CommandSet& commands);
void AddMemory(CommandSet& commands);
void AddOpt(CommandSet& commands);
void AddOverlap(CommandSet& commands);
void AddParallelize(CommandSet& commands);
void AddReduce(CommandSet& commands);
void AddReport(CommandSet& commands);
void AddSchedule(CommandSet& commands);
void AddSolve(CommandSet& commands);
void AddStats(CommandSet& commands);
void AddTokenize(CommandSet& commands);

}  // namespace heddle
