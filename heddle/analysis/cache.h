// Analyses of graphs: computed when they are asked for, and kept for as long as the graph stays as it is.
#pragma once

#include <list>
#include <optional>

#include "heddle/analysis/dependence.h"
#include "heddle/analysis/liveness.h"
#include "heddle/analysis/memory.h"
#include "heddle/analysis/uses.h"

namespace heddle {

class AnalysisCache {
 public:
  // What holds for the graph as it is now, by its revision: an edit makes all of it be computed anew. References are good until
  // DropStale, but what they say is about the graph that was asked about, with its ids.
  const Uses& uses(Graph& graph);
  const Liveness& liveness(Graph& graph);
  const CollectiveDependence& dependence(Graph& graph);
  const MemoryTimeline& memory(Graph& graph);

  // Lets go of what is about revisions that no graph has any more.
  void DropStale();
  // How many revisions are known.
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

  // A list, so that references stay good.
  std::list<Known> known_;
};

}  // namespace heddle
