// How save and recompute decisions combine when two values become one.
#pragma once

#include "heddle/ir/rewriter.h"

namespace heddle {

// The decision that asks for more: keeping a value wins over making it again, a demand over a preference.
constexpr Keep StrongerKeep(Keep a, Keep b) {
  constexpr auto rank = [](Keep keep) {
    switch (keep) {
      case Keep::kDefault: return 0;
      case Keep::kPreferRecompute: return 1;
      case Keep::kMustRecompute: return 2;
      case Keep::kOffload: return 3;
      case Keep::kMustSave: return 4;
    }
    return 0;
  };
  return rank(a) >= rank(b) ? a : b;
}

// Every use of `from` becomes a use of `to`, which takes over the decision if that asks for more. An input is always
// kept, so it takes none.
inline void ReplaceAndKeep(Rewriter& rewriter, const Graph& graph, ValueId from, ValueId to) {
  to = rewriter.Resolve(to);
  if (graph[to].producer) rewriter.SetKeep(to, StrongerKeep(graph[to].keep, graph[from].keep));
  rewriter.ReplaceValue(from, to);
}

}  // namespace heddle
