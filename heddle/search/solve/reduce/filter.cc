// Removes choices that no answer uses: arc consistency over the edges, and bounds on the rows.
#include <algorithm>
#include <cmath>

#include "heddle/search/solve/reduce/reduce.h"

namespace heddle::search {
namespace {

class Filter {
 public:
  Filter(Core& core, const WorkLimit& limit)
      : core_(core),
        limit_(limit),
        queued_(core.edges.size()),
        supports_(core.edges.size()),
        row_terms_(core.rows.size()) {
    limit_.Spend(core.edges.size());
    for (const CoreVariable& variable : core_.variables) {
      first_.push_back(keep_.size());
      left_.push_back(variable.size());
      keep_.insert(keep_.end(), variable.size(), 1);
    }
    for (uint32_t v = 0; v < core_.variables.size(); ++v) {
      const CoreVariable& variable = core_.variables[v];
      for (const CoreTerm& term : variable.terms) row_terms_[term.row].push_back({v, &term});
      for (uint32_t k = 0; k < variable.size(); ++k) {
        if (variable.cost[k] == kForbidden) Remove(v, k);
      }
    }
    for (uint32_t e = 0; e < core_.edges.size(); ++e) {
      if (!core_.edges[e].gone() && core_.edges[e].unchecked) Queue(e);
    }
  }

  bool Run() {
    for (;;) {
      CheckEdges();
      size_t before = removed_;
      for (uint32_t r = 0; r < core_.rows.size() && !empty_; ++r) CheckRow(r);
      if (empty_) return false;
      if (removed_ == before || limit_.Spent()) return true;
    }
  }

  size_t Commit() {
    if (removed_ != 0) core_.Keep(keep_);
    for (CoreEdge& edge : core_.edges) edge.unchecked = false;
    return removed_;
  }

 private:
  // For each choice of each end, the index of its last known partner. All earlier choices are
  // removed.
  struct Supports {
    std::vector<uint32_t> row;
    std::vector<uint32_t> column;
  };
  struct RowTerm {
    uint32_t variable;
    const CoreTerm* term;
  };

  uint8_t* keep(uint32_t v) { return keep_.data() + first_[v]; }

  void Queue(uint32_t e) {
    if (queued_[e]) return;
    queued_[e] = true;
    queue_.push_back(e);
  }
  void Remove(uint32_t v, uint32_t k) {
    keep(v)[k] = 0;
    ++removed_;
    if (--left_[v] == 0) empty_ = true;
    for (uint32_t e : core_.variables[v].edges) Queue(e);
  }

  void CheckEdges() {
    for (size_t i = 0; i < queue_.size() && !empty_; ++i) {
      uint32_t e = queue_[i];
      const CoreEdge& edge = core_.edges[e];
      queued_[e] = false;
      Supports& supports = supports_[e];
      if (supports.row.empty()) {
        supports.row.resize(core_.variables[edge.u].size());
        supports.column.resize(core_.variables[edge.v].size());
      }
      RemoveUnsupported(edge.u, edge.v, core_.View(e, edge.u), supports.row);
      RemoveUnsupported(edge.v, edge.u, core_.View(e, edge.v), supports.column);
    }
    queue_.clear();
  }

  void RemoveUnsupported(uint32_t v, uint32_t other, EdgeView cost,
                         std::vector<uint32_t>& supports) {
    const uint8_t* kept = keep(v);
    const uint8_t* partners = keep(other);
    uint32_t most = core_.variables[other].size();
    size_t steps = supports.size();
    for (uint32_t k = 0; k < supports.size(); ++k) {
      if (kept[k] == 0) continue;
      uint32_t& at = supports[k];
      uint32_t before = at;
      while (at < most && (partners[at] == 0 || cost(k, at) == kForbidden)) ++at;
      steps += at - before;
      if (at == most) Remove(v, k);
    }
    limit_.Spend(2 * steps);
  }

  // Returns the minimum and maximum amount of a variable in a row.
  std::pair<double, double> Range(const RowTerm& t) {
    double least = HUGE_VAL;
    double most = -HUGE_VAL;
    const uint8_t* kept = keep(t.variable);
    for (size_t k = 0; k < t.term->amount.size(); ++k) {
      if (kept[k] == 0) continue;
      least = std::min(least, t.term->amount[k]);
      most = std::max(most, t.term->amount[k]);
    }
    return {least, most};
  }

  void CheckRow(uint32_t r) {
    double least = 0;
    double most = 0;
    for (const RowTerm& t : row_terms_[r]) {
      auto [a, b] = Range(t);
      least += a;
      most += b;
      limit_.Spend(2 * t.term->amount.size());
    }
    const CoreRow& row = core_.rows[r];
    if (least > row.hi || most < row.lo) empty_ = true;
    for (const RowTerm& t : row_terms_[r]) {
      if (empty_) return;
      auto [a, b] = Range(t);
      if (least - a + b <= row.hi && most - b + a >= row.lo) continue;
      for (uint32_t k = 0; k < t.term->amount.size(); ++k) {
        double amount = t.term->amount[k];
        if (keep(t.variable)[k] != 0 && (least - a + amount > row.hi || most - b + amount < row.lo))
          Remove(t.variable, k);
      }
    }
  }

  Core& core_;
  const WorkLimit& limit_;
  // A byte for each choice of each variable; the offset of each variable; and the number of choices
  // left.
  std::vector<uint8_t> keep_;
  std::vector<size_t> first_;
  std::vector<uint32_t> left_;
  size_t removed_ = 0;
  bool empty_ = false;
  std::vector<uint32_t> queue_;
  std::vector<bool> queued_;
  std::vector<Supports> supports_;
  std::vector<std::vector<RowTerm>> row_terms_;
};

}  // namespace

bool FilterChoices(Core& core, const ReduceOptions& options, ReduceCounts& counts) {
  Filter filter(core, options.limit);
  if (!filter.Run()) return false;
  counts.impossible += filter.Commit();
  return true;
}

}  // namespace heddle::search
