// The class that implements BuildGraph. graph_builder.cc has the loop over calls, build_call.cc
// handles calls of ops in the table, build_opaque.cc other calls, build_collective.cc calls of
// c10d.
#pragma once

#include <deque>
#include <unordered_map>

#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ops/ops.h"
#include "heddle/import/foreign_ops.h"
#include "heddle/import/graph_builder.h"
#include "heddle/import/groups.h"

namespace heddle {

class GraphBuilder {
 public:
  GraphBuilder(const ForeignProgram& program, const SourceText& source,
               const ImportOptions& options)
      : program_(program), source_(source), options_(options), ops_(Ops()) {}

  Result<Imported> Build();

 private:
  // The meaning of a name of the program.
  struct Binding {
    enum class Kind : uint8_t { kNothing, kTensor, kNumber, kLaunched };
    Kind kind = Kind::kNothing;
    // The tensor. For a number, the node that computes it, or none if it is constant.
    ValueId value = {};
    // One tensor of a collective: the collective, and the index of the tensor.
    struct OfLaunch {
      uint32_t launch;
      uint32_t item;
    };
    // Selected by `kind`. A union, because every name has a binding.
    union {
      int64_t number = 0;
      OfLaunch launched;
    };
  };
  struct Launch {
    const ForeignCall* call;
    ValueId async;
    // The node of its wait; none before the wait is added.
    NodeId wait = {};
  };
  // How calls of a target are converted.
  struct Target {
    enum class Kind : uint8_t {
      kTable,
      kOpaque,
      kWait,
      kCollective,
      kArithmetic,
      kSize,
      kCopyInto
    };
    Kind kind = Kind::kOpaque;
    // The op in the table.
    OpId op = {};
    // For opaque calls: the name in the graph, and properties of the op.
    std::string opaque_name = {};
    bool asserts = false;
    bool writes_in_place = false;
    bool reads_size = false;
    // The number of opaque calls, and of calls that the shape rule rejected.
    size_t opaque = 0;
    size_t refused = 0;
  };
  // Whether the graph is of the whole step, as the user or the program states.
  bool global() const { return options_.global || program_.global; }

  // --- graph_builder.cc
  Target TargetOf(std::string_view name) const;
  void FindTargets();
  // Finds the name of the first wait for each value.
  void FindWaits();
  Status AddInputs();
  Status AddOutputs();
  void AddRemarks();
  Status AddCall(const ForeignCall& call);
  void Bind(WordId name, const Binding& binding) {
    if (name) bindings_[name] = binding;
  }
  void BindTensor(WordId name, ValueId value) {
    Bind(name, {.kind = Binding::Kind::kTensor, .value = value, .number = 0});
  }
  // Binds a name to a number, and keeps its node if it has one.
  void BindNumber(WordId name, int64_t number);
  // Empty for a none id.
  std::string_view Text(WordId word) const { return program_.text(word); }
  std::string_view Text(const ForeignValue& value) const { return Text(value.word); }
  // Null if the value is not a name, or the name is not bound.
  const Binding* Find(const ForeignValue& value) const {
    if (value.kind != ForeignValue::Kind::kName) return nullptr;
    const Binding& binding = bindings_[value.word];
    return binding.kind == Binding::Kind::kNothing ? nullptr : &binding;
  }
  // The tensor that an argument names. Adds a wait if the tensor is in flight.
  Result<ValueId> Tensor(const ForeignCall& call, const ForeignValue& value);
  // The value of a numeric argument, or nullopt.
  std::optional<int64_t> Number(const ForeignValue& value) const;
  // Adds the node of a call whose operands are in operands_, names its results and binds them.
  Status Finish(const ForeignCall& call, OpId op, AttrsId attrs, std::span<const TypeId> types);
  Status NameResults(const ForeignCall& call, OpId op, std::span<const TypeId> types);
  // The position of a result among the node's results; -1 for a result that the node does not have.
  int64_t PositionOf(const ForeignCall& call, OpId op, size_t result) const;
  Status CheckStated(const ForeignCall& call, const Type* stated, TypeId found, WordId name);
  // Appends a node whose results are named by names_.
  NodeId Append(const ForeignCall& call, OpId op, std::span<const ValueId> operands, AttrsId attrs,
                std::span<const TypeId> types);
  // A name for an unnamed result, such as `split.3`. Valid until the next node.
  std::string_view MakeName(std::string_view call, size_t result);
  std::string_view NameOf(const ForeignCall& call) const {
    return call.name ? Text(call.name) : "unnamed";
  }
  std::vector<TypeId> InternTypes(std::span<const Type> types);
  template <typename... Args>
  Failure Fail(const ForeignCall& call, Diag kind, fmt::format_string<Args...> format,
               Args&&... args) const {
    return {{At(call, MakeDiagnostic(kind, format, std::forward<Args>(args)...))}};
  }
  Diagnostic At(const ForeignCall& call, Diagnostic diagnostic) const;

  // --- build_call.cc
  Status AddTableCall(const ForeignCall& call, OpId op);
  // The result types of the call in builder_, whose operands are in operands_.
  Result<std::vector<TypeId>> InferredTypes(OpId op, AttrsId attrs);
  // Takes the operands from builder_. Fails if it rejected the call.
  Status TakeOperands(const ForeignCall& call);
  Status AddOpaqueCall(const ForeignCall& call);
  std::optional<std::vector<Type>> OpaqueTypes(const ForeignCall& call);
  // Converts arguments of an opaque call to builder_, and its operands to operands_.
  Status BuildOpaque(const ForeignCall& call, std::string_view name);
  // Adds the node of the opaque call in builder_.
  Status FinishOpaque(const ForeignCall& call, std::span<const TypeId> types);
  // The result type of a valid call that the shape rule rejects; nullopt if the file is wrong.
  std::optional<Type> TypeInSpite(const ForeignCall& call, Diag refusal) const;
  Status AddArithmetic(const ForeignCall& call);
  Status AddSize(const ForeignCall& call);
  Status AddCopyInto(const ForeignCall& call);
  // The variant of the op that takes a number where the call has one instead of a tensor; none if
  // the table has no such op.
  OpId WithNumber(const ForeignCall& call, OpId op) const;
  Status AddArgument(const ForeignCall& call, const Arg& arg, const ForeignValue& value);
  Status AddTensorList(const ForeignCall& call, const Arg& arg, const ForeignValue& value);
  // Adds a node for a number as a tensor without dimensions.
  ValueId ScalarNode(const ForeignCall& call, const ForeignValue& value);
  std::optional<AttrValue> ToAttr(const ForeignValue& value) const;
  bool AddOpaqueArgument(const ForeignArg& arg, size_t position, bool leads);
  void CollectTensors(const ForeignValue& value, std::vector<ValueId>& tensors) const;

  // --- build_collective.cc
  Status AddCollective(const ForeignCall& call);
  Status BeginCollective(const ForeignCall& call, OpId op, const Axes& over,
                         std::span<const ForeignValue> inputs);
  Status FinishCollective(const ForeignCall& call, OpId op, AttrsId attrs, TypeId async);
  Status AddWait(const ForeignCall& call);
  Status AddAllToAll(const ForeignCall& call, const Axes& over, ValueId tensor);
  // Adds the wait for a collective.
  Status WaitFor(uint32_t launch);
  Status CheckGroup(const ForeignCall& call, std::string_view group, const ForeignValue* size);
  const ForeignValue* Argument(const ForeignCall& call, size_t position,
                               std::string_view name) const;

  const ForeignProgram& program_;
  const SourceText& source_;
  const ImportOptions& options_;
  const OpTable& ops_;
  GroupAxes groups_;
  Imported imported_;
  // imported_.module.graphs[0]
  Graph* graph_ = nullptr;
  std::optional<CallBuilder> builder_;

  Table<TargetId, Target> targets_;
  Table<WordId, Binding> bindings_;
  std::vector<Launch> launches_;
  // By value: the name of its first wait, if any.
  Table<WordId, WordId> wait_names_;
  // Inputs that the program writes to with the written values, and the index in this list of each
  // input's entry.
  std::vector<std::pair<ValueId, ValueId>> updates_;
  std::unordered_map<uint32_t, size_t> update_of_;
  size_t hinted_ = 0;
  // Sizes come from an example, and may be inconsistent.
  bool has_hints_ = false;
  // The number of nodes for arithmetic with sizes.
  size_t arithmetic_ = 0;

  // Result types by op, attributes and operand types.
  CallTable<std::vector<TypeId>> known_types_;
  CallKey key_;

  // The operands of the current node. Reused between nodes.
  std::vector<ValueId> operands_;
  // The names of its results: words of the program, or names in made_names_.
  std::vector<std::string_view> names_;
  std::deque<std::string> made_names_;
  std::vector<ResultSpec> results_;
};

}  // namespace heddle
