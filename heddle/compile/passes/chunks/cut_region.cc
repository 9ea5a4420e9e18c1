#include "heddle/compile/passes/chunks/cut_region.h"

#include <algorithm>

namespace heddle::compile {

bool CutRegion::Unread(const Use& /*use*/) { return false; }

Attrs CutRegion::AttrsOf(NodeId node, int64_t /*piece*/) const {
  return rules_.ChunkAttrs(node, cut(node));
}

std::vector<CutRegion::Stage> CutRegion::Stages() const {
  std::vector<Stage> stages;
  for (NodeId node : graph_.nodes()) {
    if (has(node)) stages.push_back({node, {node}});
  }
  return stages;
}

CutRegion::Rows CutRegion::RowsOf(int64_t rows, int64_t piece) const {
  return {piece * (rows / pieces()), rows / pieces()};
}

bool CutRegion::ReadsPieces(const Use& use) const {
  const ValueId v = graph_.operands(use.node)[use.operand];
  return has(use.node) && cut(v) && cut(use.node).operands[use.operand] == cut(v);
}

bool CutRegion::ReadWhole(ValueId v) {
  return uses_.is_output(v) || std::ranges::any_of(uses_.of(v), [&](const Use& use) {
           return !ReadsPieces(use) && !Unread(use);
         });
}

}  // namespace heddle::compile
