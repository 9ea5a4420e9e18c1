#include "heddle/core/ir/edit/rewriter.h"

#include <algorithm>
#include <exception>

#include "heddle/core/base/pool.h"

namespace heddle {
Rewriter::Rewriter(Graph& graph) : graph_(graph), erased_(graph.node_count(), false) {}

Rewriter::~Rewriter() noexcept(false) {
  HEDDLE_CHECK(!edited_ || std::uncaught_exceptions() > 0,
               "a rewriter was dropped without a commit");
}

void Rewriter::CheckNodeId(NodeId node) const {
  HEDDLE_CHECK(node.index() < graph_.node_count(), "a node id is not of this graph");
}

void Rewriter::MakeSchedule() {
  if (!links_.empty()) return;
  auto count = static_cast<uint32_t>(graph_.node_count());
  links_.resize(count + 1);
  for (uint32_t entry = 0; entry <= count; ++entry) Connect(entry, entry < count ? entry + 1 : 0);
}

NodeId Rewriter::Insert(NodeId behind, const NodeSpec& spec) {
  edited_ = renumbers_ = true;
  MakeSchedule();
  NodeId id = graph_.Append(spec);
  auto entry = static_cast<uint32_t>(links_.size());
  links_.emplace_back();
  Connect(entry, links_[behind.index() + 1].next);
  Connect(behind.index() + 1, entry);
  erased_.push_back(false);
  return id;
}

NodeId Rewriter::InsertBefore(NodeId anchor, const NodeSpec& spec) {
  CheckNodeId(anchor);
  return Insert(PreviousOf(anchor), spec);
}

NodeId Rewriter::InsertAfter(NodeId anchor, const NodeSpec& spec) {
  CheckNodeId(anchor);
  return Insert(anchor, spec);
}

NodeId Rewriter::InsertFirst(const NodeSpec& spec) { return Insert(NodeId(), spec); }

NodeId Rewriter::InsertLast(const NodeSpec& spec) { return Insert(PreviousOf(NodeId()), spec); }

ValueId Rewriter::AddInput(Input input, TypeId type, std::string_view name, PlacementId placement) {
  edited_ = renumbers_ = true;
  ResultSpec spec;
  spec.type = type;
  spec.name = name;
  spec.placement = placement;
  input.value = graph_.AddValue(spec, NodeId());
  graph_.inputs_.push_back(std::move(input));
  return graph_.inputs_.back().value;
}

NodeId Rewriter::CloneBefore(NodeId anchor, NodeId node, std::optional<Phase> phase) {
  CheckNodeId(node);
  const Node original = graph_[node];
  std::vector<ValueId> operands(graph_.operands(node).begin(), graph_.operands(node).end());
  std::vector<ResultSpec> results;
  for (ValueId v : graph_.results(node))
    results.push_back({graph_.type(v), graph_.name(v), graph_[v].placement, graph_[v].keep});
  return InsertBefore(anchor, {.op = original.op,
                               .operands = operands,
                               .attrs = original.attrs,
                               .results = results,
                               .scope = original.scope,
                               .phase = phase.value_or(original.phase),
                               .stream = original.stream});
}

void Rewriter::Reorder(std::span<const NodeId> order) {
  HEDDLE_CHECK(order.size() == graph_.node_count(), "a new order must list every node once");
  edited_ = renumbers_ = true;
  MakeSchedule();
  std::vector<bool> seen(order.size());
  uint32_t last = 0;
  for (NodeId id : order) {
    CheckNodeId(id);
    HEDDLE_CHECK(!seen[id.index()], "a new order lists a node twice");
    seen[id.index()] = true;
    Connect(last, id.index() + 1);
    last = id.index() + 1;
  }
  Connect(last, 0);
}

void Rewriter::Erase(NodeId node) {
  CheckNodeId(node);
  edited_ = renumbers_ = true;
  erased_[node.index()] = true;
}

void Rewriter::ReplaceValue(ValueId from, ValueId to) {
  edited_ = renumbers_ = true;
  while (replacement_.size() < graph_.value_count())
    replacement_.push_back(ValueId(replacement_.size()));
  to = Resolve(to);
  HEDDLE_CHECK(to != from, "a value would be replaced by itself");
  replacement_[from.index()] = to;
  Value& kept = graph_.values_[to];
  if (kept.producer) kept.keep = StrongerKeep(kept.keep, graph_.values_[from].keep);
}

ValueId Rewriter::Resolve(ValueId value) const {
  if (!value) return value;
  ValueId root = value;
  while (root.index() < replacement_.size() && replacement_[root.index()] != root)
    root = replacement_[root.index()];
  // Shorten the path, so that a long chain of replacements takes linear time.
  while (value != root) value = std::exchange(replacement_[value.index()], root);
  return root;
}

void Rewriter::SetOperand(NodeId node, size_t i, ValueId value) {
  edited_ = true;
  graph_.operand_pool_[graph_.nodes_[node].first_operand + i] = value;
}

void Rewriter::SetOperands(NodeId node, std::span<const ValueId> operands, AttrsId attrs) {
  edited_ = renumbers_ = true;
  Node& edited = graph_.nodes_[node];
  edited.first_operand = static_cast<uint32_t>(graph_.operand_pool_.size());
  edited.operand_count = static_cast<uint32_t>(operands.size());
  edited.attrs = attrs;
  AppendToPool(graph_.operand_pool_, operands);
}

void Rewriter::SetOp(NodeId node, OpId op, AttrsId attrs) {
  edited_ = true;
  graph_.nodes_[node].op = op;
  graph_.nodes_[node].attrs = attrs;
}

void Rewriter::SetAttrs(NodeId node, AttrsId attrs) {
  edited_ = true;
  graph_.nodes_[node].attrs = attrs;
}

void Rewriter::SetPhase(NodeId node, Phase phase) {
  edited_ = true;
  graph_.nodes_[node].phase = phase;
}

void Rewriter::SetStream(NodeId node, uint8_t stream) {
  edited_ = true;
  graph_.nodes_[node].stream = stream;
}

void Rewriter::SwapNames(ValueId a, ValueId b) {
  edited_ = true;
  std::swap(graph_.values_[a].name, graph_.values_[b].name);
  graph_.value_of_name_[graph_.values_[a].name] = a;
  graph_.value_of_name_[graph_.values_[b].name] = b;
}

void Rewriter::SetType(ValueId value, TypeId type, PlacementId placement) {
  edited_ = true;
  graph_.values_[value].type = type;
  graph_.values_[value].placement = placement;
}

void Rewriter::SetKeep(ValueId value, Keep keep) {
  edited_ = true;
  graph_.values_[value].keep = keep;
}

void Rewriter::SetOutput(size_t output, ValueId value) {
  edited_ = true;
  graph_.outputs_[output].value = value;
}

void Rewriter::EraseInput(size_t input) {
  edited_ = renumbers_ = true;
  input_erased_.resize(graph_.inputs_.size());
  input_erased_[input] = true;
}

void Rewriter::EraseOutput(size_t output) {
  edited_ = renumbers_ = true;
  output_erased_.resize(graph_.outputs_.size());
  output_erased_[output] = true;
}

Result<Changed> Rewriter::Finish(Status status) {
  if (status.ok()) return Commit();
  Abandon();
  return std::move(status).failure();
}

Changed Rewriter::Commit() {
  if (!edited_) return Changed::kNo;
  if (renumbers_) Rebuild(NewOrder());
  // Fresh names depend only on the current names, so a run resumed from text generates the same
  // ones.
  graph_.fresh_bases_ = {};
  graph_.fresh_next_.clear();
  edited_ = false;
  return Changed::kYes;
}

std::vector<NodeId> Rewriter::NewOrder() {
  MakeSchedule();
  std::vector<NodeId> kept;
  kept.reserve(graph_.node_count());
  for (uint32_t entry = links_[0].next; entry != 0; entry = links_[entry].next) {
    if (!erased_[entry - 1]) kept.emplace_back(entry - 1);
  }
  return kept;
}

void Rewriter::Rebuild(const std::vector<NodeId>& order) {
  Table<ValueId, ValueId> renumbered(graph_.value_count());
  Table<ValueId, Value> values;
  Table<NameId, ValueId> value_of_name(graph_.names_.size());
  values.reserve(graph_.value_count());
  auto carry = [&](ValueId old, NodeId producer) {
    Value value = graph_.values_[old];
    value.producer = producer;
    renumbered[old] = values.Add(value);
    value_of_name[value.name] = renumbered[old];
  };

  std::vector<Input> inputs;
  inputs.reserve(graph_.inputs_.size());
  for (size_t i = 0; i < graph_.inputs_.size(); ++i) {
    if (i < input_erased_.size() && input_erased_[i]) continue;
    inputs.push_back(std::move(graph_.inputs_[i]));
    carry(inputs.back().value, NodeId());
    inputs.back().value = renumbered[inputs.back().value];
  }
  Table<NodeId, Node> nodes;
  nodes.reserve(order.size());
  for (NodeId old : order) {
    Node node = graph_.nodes_[old];
    IdRange<ValueId> results = graph_.results(old);
    node.first_result = ValueId(values.size());
    NodeId id = nodes.Add(node);
    for (ValueId result : results) carry(result, id);
  }

  auto renumber = [&](ValueId old) {
    if (!old) return old;
    ValueId resolved = Resolve(old);
    HEDDLE_CHECK(renumbered[resolved],
                 "`%" + std::string(graph_.name(resolved)) + "` is used, but its node was erased");
    return renumbered[resolved];
  };
  std::vector<ValueId> pool;
  pool.reserve(graph_.operand_pool_.size());
  for (Node& node : nodes) {
    auto first = static_cast<uint32_t>(pool.size());
    for (uint32_t i = 0; i < node.operand_count; ++i)
      pool.push_back(renumber(graph_.operand_pool_[node.first_operand + i]));
    node.first_operand = first;
  }
  std::vector<Output> outputs;
  outputs.reserve(graph_.outputs_.size());
  for (size_t i = 0; i < graph_.outputs_.size(); ++i) {
    if (i < output_erased_.size() && output_erased_[i]) continue;
    outputs.push_back(std::move(graph_.outputs_[i]));
    outputs.back().value = renumber(outputs.back().value);
    // An update keeps its target input, even if other uses of the input were replaced.
    if (outputs.back().target) outputs.back().target = renumbered[outputs.back().target];
  }

  graph_.nodes_ = std::move(nodes);
  graph_.values_ = std::move(values);
  graph_.operand_pool_ = std::move(pool);
  graph_.inputs_ = std::move(inputs);
  graph_.outputs_ = std::move(outputs);
  graph_.value_of_name_ = std::move(value_of_name);
}

}  // namespace heddle
