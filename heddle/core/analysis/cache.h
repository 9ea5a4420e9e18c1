// Analyses of graphs, computed when they are first asked for and kept until the graph changes.
#pragma once

#include <list>
#include <optional>

#include "heddle/core/analysis/dependence.h"
#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/analysis/uses.h"

namespace heddle {

class AnalysisCache {
 public:
  // Answers are about the graph as it is now: they are kept by revision, and every edit gives a graph a new one. A reference
  // is good until DropStale. It goes on to describe the graph as it was, so it is of no use after a commit.
  const Uses& uses(Graph& graph);
  const Liveness& liveness(Graph& graph);
  const CollectiveDependence& dependence(Graph& graph);
  const MemoryTimeline& memory(Graph& graph);

  // Drops what is known about revisions that no graph has any more.
  void DropStale();
  // Of how many revisions anything is known.
  size_t size() const { return known_.size(); }

 private:
  struct Known {
    Graph::Revision revision;
    std::optional<Uses> uses;
    std::optional<Liveness> liveness;
    std::optional<CollectiveDependence> dependence;
    std::optional<MemoryTimeline> memory;
  };
  Known& Of(Graph& graph);

  // A list, because references into it must stay good.
  std::list<Known> known_;
};

}  // namespace heddle
