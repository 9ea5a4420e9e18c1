// MeasuredIndex: finds measured times for the nodes of one graph, and tracks the used ones.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

class MeasuredIndex {
 public:
  // `costs` must outlive this.
  explicit MeasuredIndex(const MeasuredCosts& costs);

  bool has_ops() const { return !by_call_.empty(); }
  // By op, operand types and the attributes that the entry names; the first entry that matches.
  std::optional<Nanos> Op(const Module& module, const Graph& graph, NodeId id);
  // By name.
  std::optional<Nanos> Node(const Graph& graph, NodeId id);
  // Marks a curve of the costs as used; null is ignored.
  void UseCurve(const Curve* curve);

  MeasuredUse Use() const;

 private:
  const MeasuredCosts& costs_;
  std::map<std::string, std::vector<size_t>> by_call_;
  std::vector<bool> used_;
  std::vector<bool> used_curves_;
  // Entries of the costs.
  std::unordered_set<const Nanos*> used_nodes_;
};

}  // namespace heddle::price
