// A report as one HTML file that needs nothing else: no network, no server, no other file.
//
// What it shows is drawn in the browser, by the scripts of this folder, from the data within the page.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/report/comparison.h"
#include "heddle/search/evaluate/simulated_module.h"

namespace heddle {

// A step and what made it.
struct ReportedStep {
  SimulatedStep step;
  std::vector<compile::PassRecord> passes = {};
};

// One graph: a step, or two that are compared, the later one second.
using ReportedGraph = std::vector<ReportedStep>;

std::string FormatPage(const std::vector<ReportedGraph>& graphs);

// A graph of a simulated module, which outlives the result.
SimulatedStep StepOf(const search::SimulatedModule& simulated, size_t graph,
                     const price::CostModel& model);

}  // namespace heddle
