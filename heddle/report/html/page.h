// A report as one self-contained HTML file.
//
// The scripts of this folder draw it in the browser from the data in the page.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/manager.h"
#include "heddle/report/comparison.h"
#include "heddle/search/evaluate/simulated_module.h"

namespace heddle {

// A step and the passes that produced it.
struct ReportedStep {
  SimulatedStep step;
  std::vector<compile::PassRecord> passes = {};
};

// One graph: a step, or two steps to compare, the newer one second.
using ReportedGraph = std::vector<ReportedStep>;

// `pipeline`: set if the graphs are those of the coordinates of a pipeline.
std::string FormatPage(const std::vector<ReportedGraph>& graphs,
                       const std::optional<price::PipelineSimulation>& pipeline = {});

// A graph of a simulated module, which outlives the result.
SimulatedStep StepOf(const search::SimulatedModule& simulated, size_t graph,
                     const price::CostModel& model);

}  // namespace heddle
