// The class behind BuildGraph; graph_builder.cc has what holds it together, build_call.cc calls of ops, build_collective.cc those of
// c10d.
#pragma once

#include <unordered_map>

#include "heddle/import/foreign_ops.h"
#include "heddle/import/graph_builder.h"
#include "heddle/import/groups.h"
#include "heddle/ir/call_builder.h"
#include "heddle/ops/ops.h"

namespace heddle {

class GraphBuilder {
 public:
  GraphBuilder(const ForeignProgram& program, const SourceText& source,
               const ImportOptions& options)
      : program_(program), source_(source), options_(options), ops_(Ops()) {}

  Result<Imported> Build();

 private:
  // What a name of the program stands for.
  struct Binding {
    enum class Kind : uint8_t { kTensor, kNumber, kLaunched };
    Kind kind = Kind::kTensor;
    // The tensor; of a number, the node that computes it, or none if it is always the same.
    ValueId value = {};
    int64_t number = 0;
    // A tensor of a collective: which collective, and which of its tensors.
    uint32_t launch = 0;
    uint32_t item = 0;
  };
  struct Launch {
    const ForeignCall* call;
    ValueId async;
    // After its wait.
    std::vector<ValueId> results = {};
  };

  // --- graph_builder.cc
  Status AddInputs();
  Status AddOutputs();
  Status AddCall(const ForeignCall& call);
  void Bind(std::string_view name, Binding binding) { bindings_[name] = binding; }
  void BindTensor(std::string_view name, ValueId value) {
    Bind(name, {.kind = Binding::Kind::kTensor, .value = value});
  }
  const Binding* Find(const ForeignValue& value) const;
  // The tensor that an argument names; waits for it if it is still on its way.
  Result<ValueId> Tensor(const ForeignCall& call, const ForeignValue& value);
  // The number that an argument is, or none.
  std::optional<int64_t> Number(const ForeignValue& value) const;
  // Names the results of a call and binds them. `call` may be of one result or of several.
  Status Finish(const ForeignCall& call, OpId op, const std::vector<Type>& types);
  Status CheckStated(const ForeignCall& call, const std::optional<Type>& stated, const Type& found,
                     std::string_view name);
  NodeId Append(const ForeignCall& call, OpId op, std::span<const ValueId> operands,
                const Attrs& attrs, std::span<const Type> types,
                std::span<const std::string_view> names);
  template <typename... Args>
  Failure Fail(const ForeignCall& call, Diag kind, fmt::format_string<Args...> format,
               Args&&... args) const {
    return {{At(call, MakeDiagnostic(kind, format, std::forward<Args>(args)...))}};
  }
  Diagnostic At(const ForeignCall& call, Diagnostic diagnostic) const;

  // --- build_call.cc
  Status AddTableCall(const ForeignCall& call, OpId op);
  Status AddOpaqueCall(const ForeignCall& call);
  Status FinishOpaque(const ForeignCall& call, std::string_view name,
                      const std::vector<Type>& types);
  // The result of a call that the shape rule refuses although it is none of the file's faults; none if it is.
  std::optional<Type> TypeInSpite(const ForeignCall& call, Diag refusal) const;
  Status AddArithmetic(const ForeignCall& call);
  Status AddSize(const ForeignCall& call);
  Status AddCopyInto(const ForeignCall& call);
  // The op that takes numbers where this one takes tensors, for a call that has a number there; none if it has none.
  OpId WithNumber(const ForeignCall& call, OpId op) const;
  Status AddArgument(const ForeignCall& call, const Arg& arg, const ForeignValue& value);
  Status AddTensorList(const ForeignCall& call, const Arg& arg, const ForeignValue& value);
  // A tensor without dimensions.
  ValueId ScalarNode(const ForeignCall& call, const ForeignValue& value);
  std::optional<AttrValue> ToAttr(const ForeignValue& value) const;
  void AddOpaqueArgument(const ForeignArg& arg, size_t position);
  void CollectTensors(const ForeignValue& value, std::vector<ValueId>& tensors) const;

  // --- build_collective.cc
  Status AddCollective(const ForeignCall& call, std::string_view name);
  Status AddWait(const ForeignCall& call);
  Status AddAllToAll(const ForeignCall& call, const Axes& over, ValueId tensor);
  // Waits for a collective. `named` is the call that asks for it, or null.
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

  std::unordered_map<std::string_view, Binding> bindings_;
  std::vector<Launch> launches_;
  // The first wait for a name.
  std::unordered_map<std::string_view, std::string_view> wait_names_;
  // Inputs that the program writes to, and what it wrote; where to find the entry of what was written.
  std::vector<std::pair<ValueId, ValueId>> updates_;
  std::unordered_map<uint32_t, size_t> update_of_;
  size_t hinted_ = 0;
  // Sizes are those of an example, and need not fit each other.
  bool has_hints_ = false;
  std::unordered_map<std::string_view, size_t> opaque_;
  std::unordered_map<std::string_view, size_t> refused_;
};

}  // namespace heddle
