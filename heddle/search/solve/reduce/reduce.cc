#include "heddle/search/solve/reduce/reduce.h"

namespace heddle::search {

bool Reduce(Core& core, const ReduceOptions& options, ReduceCounts& counts) {
  for (;;) {
    if (!FilterChoices(core, options, counts) || !SimplifyRows(core)) return false;
    options.limit.Spend(core.edges.size());
    bool changed = ContractEdges(core, counts);
    changed |= EliminateVariables(core, options, counts);
    // The decisions so far may have only forbidden costs.
    if (core.constant == kForbidden) return false;
    if (options.limit.Spent()) return true;
    if (!changed && !RemoveDominated(core, options, counts)) return true;
  }
}

}  // namespace heddle::search
