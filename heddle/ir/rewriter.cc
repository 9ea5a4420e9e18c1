#include "heddle/ir/rewriter.h"

#include <algorithm>

namespace heddle {
namespace {
// The head of the ring. Node numbers follow it, so that new nodes can be added at the end.
constexpr uint32_t kHead = 0;
uint32_t Slot(NodeId id) { return id.index() + 1; }
NodeId NodeAt(uint32_t slot) { return NodeId(slot - 1); }
}  // namespace

Rewriter::Rewriter(Graph& graph) : graph_(graph), edited_(graph.is_edited_) {
  size_t n = graph.node_count();
  next_.resize(n + 1);
  previous_.resize(n + 1);
  for (uint32_t i = 0; i <= n; ++i) {
    next_[i] = i == n ? kHead : i + 1;
    previous_[i] = i == 0 ? static_cast<uint32_t>(n) : i - 1;
  }
  erased_.resize(n, false);
}

Rewriter::~Rewriter() { HEDDLE_CHECK(!edited_, "a rewriter was dropped without a commit"); }

void Rewriter::CheckNodeId(NodeId node) const {
  HEDDLE_CHECK(Slot(node) < next_.size(), "a node id is not of this graph");
}

NodeId Rewriter::Add(const NodeSpec& spec) {
  edited_ = true;
  NodeId id = graph_.Append(spec);
  next_.push_back(0);
  previous_.push_back(0);
  erased_.push_back(false);
  return id;
}

void Rewriter::Link(uint32_t node, uint32_t after) {
  uint32_t behind = next_[after];
  next_[after] = node;
  previous_[node] = after;
  next_[node] = behind;
  previous_[behind] = node;
}

void Rewriter::Unlink(uint32_t node) {
  next_[previous_[node]] = next_[node];
  previous_[next_[node]] = previous_[node];
}

NodeId Rewriter::InsertBefore(NodeId anchor, const NodeSpec& spec) {
  CheckNodeId(anchor);
  NodeId id = Add(spec);
  Link(Slot(id), previous_[Slot(anchor)]);
  return id;
}

NodeId Rewriter::InsertAfter(NodeId anchor, const NodeSpec& spec) {
  CheckNodeId(anchor);
  NodeId id = Add(spec);
  Link(Slot(id), Slot(anchor));
  return id;
}

NodeId Rewriter::InsertFirst(const NodeSpec& spec) {
  NodeId id = Add(spec);
  Link(Slot(id), kHead);
  return id;
}

NodeId Rewriter::InsertLast(const NodeSpec& spec) {
  NodeId id = Add(spec);
  Link(Slot(id), previous_[kHead]);
  return id;
}

ValueId Rewriter::AddInput(Input input, TypeId type, std::string_view name, PlacementId placement) {
  edited_ = true;
  ResultSpec spec;
  spec.type = type;
  spec.name = name;
  spec.placement = placement;
  input.value = graph_.AddValue(spec, NodeId());
  graph_.inputs_.push_back(std::move(input));
  return graph_.inputs_.back().value;
}

void Rewriter::MoveBefore(NodeId node, NodeId anchor) {
  CheckNodeId(node);
  CheckNodeId(anchor);
  if (node == anchor) return;
  edited_ = true;
  Unlink(Slot(node));
  Link(Slot(node), previous_[Slot(anchor)]);
}

void Rewriter::MoveAfter(NodeId node, NodeId anchor) {
  CheckNodeId(node);
  CheckNodeId(anchor);
  if (node == anchor) return;
  edited_ = true;
  Unlink(Slot(node));
  Link(Slot(node), Slot(anchor));
}

void Rewriter::Reorder(std::span<const NodeId> order) {
  HEDDLE_CHECK(order.size() == graph_.node_count(), "a new order must list every node once");
  edited_ = true;
  uint32_t last = kHead;
  std::vector<bool> seen(next_.size());
  for (NodeId id : order) {
    CheckNodeId(id);
    HEDDLE_CHECK(!seen[Slot(id)], "a new order lists a node twice");
    seen[Slot(id)] = true;
    next_[last] = Slot(id);
    previous_[Slot(id)] = last;
    last = Slot(id);
  }
  next_[last] = kHead;
  previous_[kHead] = last;
}

void Rewriter::Erase(NodeId node) {
  CheckNodeId(node);
  edited_ = true;
  erased_[node.index()] = true;
}

void Rewriter::ReplaceValue(ValueId from, ValueId to) {
  edited_ = true;
  while (replacement_.size() < graph_.value_count())
    replacement_.push_back(ValueId(replacement_.size()));
  HEDDLE_CHECK(Resolve(to) != from, "a value would be replaced by itself");
  replacement_[from.index()] = to;
}

ValueId Rewriter::Resolve(ValueId value) const {
  if (!value) return value;
  ValueId root = value;
  while (root.index() < replacement_.size() && replacement_[root.index()] != root)
    root = replacement_[root.index()];
  // Shorten the path, so that long chains stay linear altogether.
  while (value != root) value = std::exchange(replacement_[value.index()], root);
  return root;
}

void Rewriter::SetOperand(NodeId node, size_t i, ValueId value) {
  edited_ = true;
  graph_.operand_pool_[graph_.nodes_[node].first_operand + i] = value;
}

void Rewriter::SetOperands(NodeId node, std::span<const ValueId> operands, AttrsId attrs) {
  edited_ = true;
  Node& edited = graph_.nodes_[node];
  edited.first_operand = static_cast<uint32_t>(graph_.operand_pool_.size());
  edited.operand_count = static_cast<uint32_t>(operands.size());
  edited.attrs = attrs;
  // The operands may be a part of the pool that is about to grow.
  std::vector<ValueId> copy(operands.begin(), operands.end());
  graph_.operand_pool_.insert(graph_.operand_pool_.end(), copy.begin(), copy.end());
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

void Rewriter::SetScope(NodeId node, ScopeId scope) {
  edited_ = true;
  graph_.nodes_[node].scope = scope;
}

void Rewriter::SetPhase(NodeId node, Phase phase) {
  edited_ = true;
  graph_.nodes_[node].phase = phase;
}

void Rewriter::SetStream(NodeId node, uint8_t stream) {
  edited_ = true;
  graph_.nodes_[node].stream = stream;
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
  edited_ = true;
  input_erased_.resize(graph_.inputs_.size());
  input_erased_[input] = true;
}

void Rewriter::EraseOutput(size_t output) {
  edited_ = true;
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
  Rebuild(NewOrder());
  graph_.revision_.reset();
  edited_ = false;
  return Changed::kYes;
}

std::vector<NodeId> Rewriter::NewOrder() const {
  std::vector<NodeId> order;
  order.reserve(next_.size());
  for (uint32_t slot = next_[kHead]; slot != kHead; slot = next_[slot]) {
    if (!erased_[NodeAt(slot).index()]) order.push_back(NodeAt(slot));
  }
  return order;
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
  for (size_t i = 0; i < graph_.outputs_.size(); ++i) {
    if (i < output_erased_.size() && output_erased_[i]) continue;
    outputs.push_back(std::move(graph_.outputs_[i]));
    outputs.back().value = renumber(outputs.back().value);
    // An update goes to the input itself, whatever its uses were replaced by.
    if (outputs.back().target) outputs.back().target = renumbered[outputs.back().target];
  }

  graph_.nodes_ = std::move(nodes);
  graph_.values_ = std::move(values);
  graph_.operand_pool_ = std::move(pool);
  graph_.inputs_ = std::move(inputs);
  graph_.outputs_ = std::move(outputs);
  graph_.value_of_name_ = std::move(value_of_name);
  // Fresh names depend on the names alive now, not on what was tried before: a run resumed from text makes the same.
  graph_.fresh_bases_ = {};
  graph_.fresh_next_.clear();
}

}  // namespace heddle
