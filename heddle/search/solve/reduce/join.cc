// Selects variables to join.
#include <algorithm>

#include "heddle/search/solve/reduce/reduce.h"

namespace heddle::search {
namespace {

class Joiner {
 public:
  Joiner(Core& core, const JoinLimits& limits)
      : core_(core),
        limits_(limits),
        touched_(core.variables.size()),
        entries_(core.EntryCount()) {}

  size_t Run() {
    std::vector<uint32_t> order;
    for (uint32_t v = 0; v < core_.variables.size(); ++v) {
      if (!core_.variables[v].gone()) order.push_back(v);
    }
    std::ranges::stable_sort(order, {}, [&](uint32_t v) { return core_.variables[v].size(); });
    size_t count = 0;
    // Variables without neighbors interact only through rows, so any two are suitable.
    uint32_t lonely = kNone;
    for (uint32_t v : order) {
      if (touched_[v]) continue;
      bool alone = core_.variables[v].edges.empty();
      uint32_t partner = alone ? lonely : Partner(v);
      if (alone) lonely = partner == kNone ? v : kNone;
      if (partner == kNone || !Fits(v, partner)) continue;
      Join(std::min(v, partner), std::max(v, partner));
      ++count;
    }
    return count;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Returns the unchanged neighbor with the fewest choices.
  uint32_t Partner(uint32_t v) const {
    uint32_t best = kNone;
    for (uint32_t e : core_.variables[v].edges) {
      uint32_t other = core_.Other(e, v);
      if (touched_[other]) continue;
      if (best == kNone || std::pair(core_.variables[other].size(), other) <
                               std::pair(core_.variables[best].size(), best))
        best = other;
    }
    return best;
  }

  bool Fits(uint32_t a, uint32_t b) {
    size_t choices = size_t{core_.variables[a].size()} * core_.variables[b].size();
    bool alone = core_.variables[a].edges.empty();
    if (choices > (alone ? limits_.lonely_choices : limits_.choices)) return false;
    size_t entries = entries_;
    for (uint32_t v : {a, b}) {
      for (uint32_t e : core_.variables[v].edges) {
        uint32_t other = core_.Other(e, v);
        // Both variables have the edge between them.
        if (other == a) continue;
        entries -= core_.edges[e].cost.size();
        if (other != b) entries += choices * core_.variables[other].size();
      }
    }
    if (entries > limits_.entries) return false;
    entries_ = entries;
    return true;
  }

  // Skips neighbors in this pass, because their matrices have just grown.
  void Join(uint32_t a, uint32_t b) {
    for (uint32_t v : {a, b}) {
      touched_[v] = true;
      for (uint32_t e : core_.variables[v].edges) touched_[core_.Other(e, v)] = true;
    }
    core_.Join(a, b);
  }

  Core& core_;
  const JoinLimits& limits_;
  std::vector<bool> touched_;
  size_t entries_;
};

}  // namespace

size_t JoinVariables(Core& core, const JoinLimits& limits) { return Joiner(core, limits).Run(); }

}  // namespace heddle::search
