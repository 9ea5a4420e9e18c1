#include "heddle/core/analysis/uses.h"

namespace heddle {

Uses::Uses(const Graph& graph) : begin_(graph.value_count() + 2), is_output_(graph.value_count()) {
  // Counting sort by value. Counts are stored two entries after their value, so that filling leaves
  // each start in its final entry.
  for (NodeId id : graph.nodes()) {
    for (ValueId value : graph.operands(id)) {
      if (value) ++begin_[value.index() + 2];
    }
  }
  for (size_t i = 2; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  uses_.resize(begin_.back());
  for (NodeId id : graph.nodes()) {
    std::span<const ValueId> operands = graph.operands(id);
    for (uint32_t i = 0; i < operands.size(); ++i) {
      if (operands[i]) uses_[begin_[operands[i].index() + 1]++] = {id, i};
    }
  }
  begin_.pop_back();
  for (const Output& output : graph.outputs()) is_output_[output.value.index()] = true;
}

}  // namespace heddle
