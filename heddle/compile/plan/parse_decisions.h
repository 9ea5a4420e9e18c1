// The statements of a plan about decisions beyond placements.
#pragma once

#include <string_view>

#include "heddle/compile/plan/decisions.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/scanner.h"

namespace heddle::compile {

// Their first words.
inline constexpr std::string_view kDecisionStatements[] = {
    "batch",        "norms",       "cluster",    "budget", "pipeline", "reshard",
    "reduce-first", "expert-rows", "checkpoint", "keep",   "stages"};

// Parses the rest of the statement `word`, which the scanner has just taken. If it fails, the
// scanner is at the mistake, and the diagnostic has no position.
Status ParseDecision(std::string_view word, uint32_t line, Scanner& scan, PlanDecisions& out);

}  // namespace heddle::compile
