// A report as one self-contained HTML file.
//
// The scripts of this folder draw it in the browser from the data in the page.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/report/comparison.h"

namespace heddle {

// A step and the passes that produced it.
struct ReportedStep {
  SimulatedStep step;
  std::vector<compile::PassRecord> passes = {};
};

// One graph: a step, or two steps to compare, the newer one second.
using ReportedGraph = std::vector<ReportedStep>;

std::string FormatPage(const std::vector<ReportedGraph>& graphs);

}  // namespace heddle
