// Graph: a flat list of nodes in execution order, and the values between them.
//
// Ids index dense tables and there are no pointers, so a graph is copied by value. A NodeId is a
// position in the schedule. Values are stored inputs first, then results in the order of their
// nodes. Uses, liveness and costs are analyses in side tables. Edits go through a Rewriter, whose
// commit renumbers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/id.h"
#include "heddle/core/base/strings.h"
#include "heddle/core/ir/attrs.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/op.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"

namespace heddle {

using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;
using NameId = Id<struct NameTag>;
using ScopeId = Id<struct ScopeTag>;

// The part of a step that a node belongs to.
enum class Phase : uint8_t { kForward, kBackward, kOptimizer };
// The save or recompute decision of a value.
enum class Keep : uint8_t { kDefault, kMustSave, kMustRecompute, kPreferRecompute, kOffload };
// The stronger of two decisions about one value: keeping is stronger than recomputing, and a demand
// is stronger than a preference.
Keep StrongerKeep(Keep a, Keep b);
// The role of an input (docs/ir.md). kPlain: the graph states no roles.
enum class InputRole : uint8_t {
  kPlain,
  kParam,
  kBuffer,
  kOpt,
  kBatch,
  kSeed,
  kSaved,
  kTangent,
  kHyper
};
// The role of an output. kPlain: the graph states no roles.
enum class OutputRole : uint8_t { kPlain, kLoss, kGrad, kUpdate, kSaved, kMetric };

// Names as in the text: `fwd`, `must_save`, `param`, `grad`.
std::string_view Name(Phase phase);
std::string_view Name(Keep keep);
std::string_view Name(InputRole role);
std::string_view Name(OutputRole role);
std::optional<Phase> ParsePhase(std::string_view name);
std::optional<Keep> ParseKeep(std::string_view name);
std::optional<InputRole> ParseInputRole(std::string_view name);
std::optional<OutputRole> ParseOutputRole(std::string_view name);

// A call of an op. Its operands are in the graph's pool, and its results are consecutive values.
struct Node {
  OpId op;
  Phase phase = Phase::kForward;
  // For a node that starts an operation: with its `over`, the communicator that it is launched on.
  uint8_t stream = 0;
  // The module of the node; none for the root.
  ScopeId scope;
  AttrsId attrs = AttrsTable::kEmpty;
  uint32_t first_operand = 0;
  uint32_t operand_count = 0;
  ValueId first_result;
  uint32_t result_count = 0;
};

// An input of the graph, or a result of a node.
struct Value {
  TypeId type;
  PlacementId placement = PlacementTable::kReplicated;
  // None for an input.
  NodeId producer;
  NameId name;
  Keep keep = Keep::kDefault;
};

// The global type and placement of a value of a local graph, where they differ from the local type.
struct GlobalType {
  TypeId type;
  PlacementId placement = PlacementTable::kReplicated;
  bool operator==(const GlobalType&) const = default;
};

// Inputs and outputs have roles; nothing is paired by position.
struct Input {
  ValueId value = {};
  InputRole role = InputRole::kPlain;
  // kParam: number in registration order. kOpt: the parameter of this state. Otherwise -1.
  int64_t index = -1;
  // The full name of a parameter or buffer, the name of a parameter's state, or any label.
  std::string label = {};
  // The FSDP unit of a parameter.
  std::string unit = {};
  GlobalType global = {};
};

struct Output {
  ValueId value = {};
  OutputRole role = OutputRole::kPlain;
  // kGrad: the parameter.
  int64_t index = -1;
  // kUpdate: the input that gets this value.
  ValueId target = {};
  std::string label = {};
  GlobalType global = {};
};

// Facts about the nodes of a scope, and of the scopes inside it, while a graph is placed on its
// mesh.
struct Region {
  ScopeId scope;
  // Over these axes every rank works on its own part alone, and local factors may be split.
  Axes local;
  // The purpose of collectives inserted there.
  Why why = Why::kTensor;
  bool operator==(const Region&) const = default;
};

// A result of a new node.
struct ResultSpec {
  TypeId type;
  // May refer to the name of another value of the graph.
  std::string_view name;
  PlacementId placement = PlacementTable::kReplicated;
  Keep keep = Keep::kDefault;
};

// A new node, for Graph::Append and Rewriter.
struct NodeSpec {
  OpId op;
  // May refer to the operands of another node of the graph.
  std::span<const ValueId> operands;
  AttrsId attrs = AttrsTable::kEmpty;
  std::span<const ResultSpec> results;
  ScopeId scope = {};
  Phase phase = Phase::kForward;
  uint8_t stream = 0;
};

class Graph {
 public:
  // `ops` must outlive the graph and all its copies.
  Graph(std::string name, const OpTable& ops) : name_(std::move(name)), ops_(&ops) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  const OpTable& ops() const { return *ops_; }

  IdRange<NodeId> nodes() const { return nodes_.ids(); }
  IdRange<ValueId> values() const { return values_.ids(); }
  size_t node_count() const { return nodes_.size(); }
  size_t value_count() const { return values_.size(); }
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  const Value& operator[](ValueId id) const { return values_[id]; }
  const Op& op(NodeId id) const { return (*ops_)[nodes_[id].op]; }
  const Attrs& attrs(NodeId id) const { return attrs_[nodes_[id].attrs]; }
  // An absent optional operand is a none id.
  std::span<const ValueId> operands(NodeId id) const {
    return {operand_pool_.data() + nodes_[id].first_operand, nodes_[id].operand_count};
  }
  IdRange<ValueId> results(NodeId id) const {
    const Node& node = nodes_[id];
    return {node.first_result.index(), node.first_result.index() + node.result_count};
  }
  std::string_view name(ValueId id) const { return names_[values_[id].name]; }
  TypeId type(ValueId id) const { return values_[id].type; }
  std::string_view scope(NodeId id) const {
    return nodes_[id].scope ? scopes_[nodes_[id].scope] : std::string_view();
  }
  // The value with this name, or none.
  ValueId FindValue(std::string_view name) const;

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  std::vector<Input>& mutable_inputs() { return inputs_; }
  std::vector<Output>& mutable_outputs() { return outputs_; }
  // The input of parameter `index`, or null.
  const Input* FindParam(int64_t index) const;

  // At most one per scope.
  const std::vector<Region>& regions() const { return regions_; }
  void SetRegions(std::vector<Region> regions) { regions_ = std::move(regions); }

  TypeTable& types() { return types_; }
  const TypeTable& types() const { return types_; }
  PlacementTable& placements() { return placements_; }
  const PlacementTable& placements() const { return placements_; }
  ScopeId InternScope(std::string_view scope) {
    return scope.empty() ? ScopeId() : scopes_.Intern(scope);
  }
  std::string_view scope_name(ScopeId id) const { return id ? scopes_[id] : std::string_view(); }
  size_t scope_count() const { return scopes_.size(); }
  AttrsId InternAttrs(const Attrs& attrs) { return attrs_.Intern(attrs, types_.symbols()); }
  const AttrsTable& attrs_table() const { return attrs_; }

  // Builds in execution order. All inputs come first. A name that is taken gets a number: see
  // FreshName.
  ValueId AddInput(Input input, TypeId type, std::string_view name,
                   PlacementId placement = PlacementTable::kReplicated);
  NodeId Append(const NodeSpec& spec);
  void AddOutput(Output output) { outputs_.push_back(std::move(output)); }
  // Avoids repeated copies while a large graph grows.
  void ReserveNodes(size_t nodes);
  void ReserveNames(size_t names);

  // `base`, or the first of `base_1`, `base_2`, ... that is free.
  std::string FreshName(std::string_view base);

 private:
  friend class Rewriter;
  friend class GraphParser;

  ValueId AddValue(const ResultSpec& spec, NodeId producer);

  std::string name_;
  const OpTable* ops_;
  Table<NodeId, Node> nodes_;
  Table<ValueId, Value> values_;
  std::vector<ValueId> operand_pool_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Region> regions_;
  // Names of removed values remain in the table and map to none.
  StringTable<NameId> names_;
  Table<NameId, ValueId> value_of_name_;
  // For FreshName: the last number tried per base, so that many fresh names take linear time.
  StringTable<NameId> fresh_bases_;
  std::vector<uint32_t> fresh_next_;
  StringTable<ScopeId> scopes_;
  TypeTable types_;
  PlacementTable placements_;
  AttrsTable attrs_;
};

// A mesh, and the graphs that run on it one after the other.
struct Module {
  View view = View::kLocal;
  Mesh mesh;
  std::vector<Graph> graphs;
};

// Operand types of a call, by value, for shape rules.
std::vector<Type> OperandTypes(const Graph& graph, std::span<const ValueId> operands);

}  // namespace heddle
