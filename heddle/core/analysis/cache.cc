#include "heddle/core/analysis/cache.h"

namespace heddle {

AnalysisCache::Known& AnalysisCache::Of(Graph& graph) {
  const Graph::Revision& revision = graph.revision();
  for (Known& known : known_) {
    if (known.revision == revision) return known;
  }
  Known& fresh = known_.emplace_back();
  fresh.revision = revision;
  return fresh;
}

const Uses& AnalysisCache::uses(Graph& graph) {
  std::optional<Uses>& uses = Of(graph).uses;
  return uses ? *uses : uses.emplace(graph);
}

const Liveness& AnalysisCache::liveness(Graph& graph) {
  std::optional<Liveness>& liveness = Of(graph).liveness;
  return liveness ? *liveness : liveness.emplace(graph);
}

const CollectiveDependence& AnalysisCache::dependence(Graph& graph) {
  std::optional<CollectiveDependence>& dependence = Of(graph).dependence;
  return dependence ? *dependence : dependence.emplace(graph);
}

const MemoryTimeline& AnalysisCache::memory(Graph& graph) {
  std::optional<MemoryTimeline>& memory = Of(graph).memory;
  return memory ? *memory : memory.emplace(ComputeMemoryTimeline(graph, liveness(graph)));
}

void AnalysisCache::DropStale() {
  known_.remove_if([](const Known& known) { return known.revision.use_count() == 1; });
}

}  // namespace heddle
