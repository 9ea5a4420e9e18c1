// Statistics of a module.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Collectives of one kind, group, purpose and phase.
struct CollectiveStats {
  std::string kind;
  std::string over;
  std::string why;
  std::string phase;
  // Launches, tensors in all launches, and bytes. A launch counts the larger of its inputs and
  // outputs, on the rank with the most.
  int64_t count = 0;
  int64_t operands = 0;
  Bytes bytes;
  // The same with the padding that makes parts equal on all ranks: the bytes on the network.
  Bytes wire_bytes;
};

// A value alive at the peak.
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
  // Elements of all parameters, on the whole mesh if a local graph states global types.
  int64_t parameters = 0;
  int64_t parameter_tensors = 0;
  // Bytes of the inputs; bytes alive at the end of the graph, inputs included.
  Bytes input_bytes;
  Bytes end_bytes;
  Bytes peak_bytes;
  std::string peak_node;
  // The values alive at the peak, largest first.
  std::vector<AliveStats> alive_at_peak;
  // Ops that are not in the table.
  std::map<std::string, int64_t> opaque;
};

// All statistics, and only those of collectives.
GraphStats ComputeStats(const Module& module, const Graph& graph);
std::vector<CollectiveStats> CountCollectives(const Module& module, const Graph& graph);

}  // namespace heddle
