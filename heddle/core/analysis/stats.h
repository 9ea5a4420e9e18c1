// What is in a module, in numbers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct CollectiveStats {
  std::string kind;
  std::string over;
  std::string why;
  std::string phase;
  // Launches, tensors in all of them, and bytes: for each launch the larger of what goes in and what comes out, on the rank that
  // has the most.
  int64_t count = 0;
  int64_t operands = 0;
  Bytes bytes;
  // The same with the padding that equal parts on all ranks need: what the network carries.
  Bytes wire_bytes;
};

struct AliveStats {
  std::string value;
  std::string type;
  Bytes bytes;
};

struct GraphStats {
  std::string name;
  int64_t nodes = 0;
  // In the order of execution.
  std::vector<std::pair<std::string, int64_t>> nodes_by_phase;
  std::map<std::string, int64_t> ops;
  // By (phase, kind, over, why).
  std::vector<CollectiveStats> collectives;
  // Elements of all parameters; of the whole mesh where a local graph states it.
  int64_t parameters = 0;
  int64_t parameter_tensors = 0;
  // What the caller hands in; what exists when the graph is done, that included.
  Bytes input_bytes;
  Bytes end_bytes;
  Bytes peak_bytes;
  std::string peak_node;
  // What is alive at the peak, the largest first.
  std::vector<AliveStats> alive_at_peak;
  // Ops that the table does not know.
  std::map<std::string, int64_t> opaque;
};

GraphStats ComputeStats(const Module& module, const Graph& graph);
std::vector<CollectiveStats> CountCollectives(const Module& module, const Graph& graph);

}  // namespace heddle
