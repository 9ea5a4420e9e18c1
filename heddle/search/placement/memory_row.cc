#include "heddle/search/placement/memory_row.h"

#include <map>
#include <set>

namespace heddle::search {
namespace {

// Returns the bytes of a tensor on a rank.
double LocalBytes(const Graph& graph, ValueId v, const Placement& placement, const Mesh& mesh) {
  std::span<const Dim> dims = graph.types().dims(graph.type(v));
  Dims bounds;
  for (Dim dim : dims) bounds.push_back(graph.types().symbols().Bound(dim));
  return static_cast<double>(compile::LocalElements(bounds, placement, mesh)) *
         static_cast<double>(ItemSize(graph.types().dtype(graph.type(v))));
}

// Collects the values of a decision that a rank keeps during the step.
class RowMaker {
 public:
  RowMaker(const Graph& graph, const Mesh& mesh, const Decisions& decisions)
      : graph_(graph), mesh_(mesh), decisions_(decisions) {}

  PairwiseBudget Make(const MemoryLimit& limit) {
    for (const Input& input : graph_.inputs()) {
      bool state = input.role == InputRole::kOpt;
      if (input.role != InputRole::kParam && !state) continue;
      uint32_t store = decisions_.of_param.at(input.index);
      const Input* param = graph_.FindParam(input.index);
      bool follows = !state || graph_.types().rank(graph_.type(param->value)) ==
                                   graph_.types().rank(graph_.type(input.value));
      if (follows) Add({store, true, 0}, input.value);
    }
    for (const Output& output : graph_.outputs()) {
      if (output.role == OutputRole::kGrad)
        Add({decisions_.of_param.at(output.index), true, 0}, output.value);
    }
    if (limit.counts_saved) AddSaved();
    PairwiseBudget budget;
    budget.name = "memory";
    budget.hi = static_cast<double>(limit.bytes.value);
    for (auto& [decision, amounts] : amounts_)
      budget.terms.push_back({VariableId(decision), std::move(amounts)});
    return budget;
  }

 private:
  void Add(const Slot& slot, ValueId v) {
    const Decision& decision = decisions_.all[slot.decision];
    std::vector<double>& amounts = amounts_[slot.decision];
    amounts.resize(decision.choices.size());
    for (size_t c = 0; c < amounts.size(); ++c)
      amounts[c] += LocalBytes(graph_, v, At(decisions_.all, slot, c), mesh_);
  }

  // Values that forward computes and backward reads. Views use no memory of their own.
  void AddSaved() {
    std::set<ValueId> saved;
    for (NodeId node : graph_.nodes()) {
      if (graph_[node].phase != Phase::kBackward) continue;
      for (ValueId v : graph_.operands(node)) {
        NodeId producer = v ? graph_[v].producer : NodeId();
        if (producer && graph_[producer].phase == Phase::kForward &&
            graph_.op(producer).effect() != Effect::kView)
          saved.insert(v);
      }
    }
    for (ValueId v : saved) {
      NodeId producer = graph_[v].producer;
      uint32_t decision = decisions_.of_node[producer.index()];
      if (decision != Decisions::kNone)
        Add({decision, true, v.index() - graph_[producer].first_result.index()}, v);
    }
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const Decisions& decisions_;
  std::map<uint32_t, std::vector<double>> amounts_;
};

}  // namespace

PairwiseBudget MemoryRow(const Graph& graph, const Mesh& mesh, const Decisions& decisions,
                         const MemoryLimit& limit) {
  return RowMaker(graph, mesh, decisions).Make(limit);
}

}  // namespace heddle::search
