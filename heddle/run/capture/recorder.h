// Recorder: turns ATen calls on traced tensors into nodes.
#pragma once

#include <string>
#include <unordered_map>

#include <ATen/core/dispatch/Dispatcher.h>

#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/run/capture/traced.h"

namespace heddle::run {

// Thrown through ATen and autograd if a call cannot be recorded. The recorder keeps the diagnostic.
struct CaptureStopped : std::exception {
  const char* what() const noexcept override { return "the capture stopped"; }
};

class Recorder {
 public:
  explicit Recorder(Graph& graph) : graph_(graph), builder_(mesh_, graph.types().symbols()) {}

  // Sends the calls of this thread to the recorder while it exists.
  class Active {
   public:
    explicit Active(Recorder& recorder);
    ~Active();
    Active(const Active&) = delete;
    Active& operator=(const Active&) = delete;

   private:
    Recorder* previous_;
  };
  static Recorder* current();

  at::Tensor AddInput(Input input, DType dtype, std::span<const int64_t> shape,
                      const std::string& name, Space space = Space::kDevice);
  void set_phase(Phase phase) { phase_ = phase; }
  // Starts the backward phase. The first node of backward gets the scope of `loss`.
  void BeginBackward(const at::Tensor& loss);
  // Records one call: pops its arguments from the stack and pushes traced results.
  void Call(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  // Returns the value of the graph that a traced tensor refers to.
  ValueId ValueOf(const at::Tensor& tensor);

  const Diagnostics& diagnostics() const { return diagnostics_; }

 private:
  // Facts about an ATen operator, found at its first call.
  struct OpInfo {
    OpId op = kOpaqueOp;
    std::string name;
    // The functional op that is recorded for an in-place op.
    std::optional<c10::OperatorHandle> functional;
    bool in_place = false;
    bool is_view = false;
    // Kinds of the arguments.
    std::vector<ArgKind> kinds;
    // Whether the op runs on meta tensors, found by trying once.
    bool meta_works = true;
  };

  template <typename... Args>
  [[noreturn]] void Stop(Diag kind, fmt::format_string<Args...> format, Args&&... args);

  OpInfo& InfoOf(const c10::OperatorHandle& op);
  ScopeId CurrentScopeId();
  void ReadTensors(const OpInfo& info, const c10::IValue& value, ArgKind kind,
                   std::string_view name);
  void ReadArguments(const OpInfo& info, const c10::FunctionSchema& schema,
                     std::span<const c10::IValue> arguments);
  ValueId Operand(const at::Tensor& tensor, std::string_view op);
  ValueId Constant(const at::Tensor& tensor, std::string_view op);
  torch::jit::Stack Infer(OpInfo& info, const c10::OperatorHandle& op,
                          std::span<const c10::IValue> arguments);
  torch::jit::Stack InferByRule(const OpInfo& info, const c10::FunctionSchema& schema);
  at::Tensor EmptyLike(const Type& type) const;
  NodeId Append(const OpInfo& info, std::span<const TypeId> types);
  TypeId TypeOf(const at::Tensor& meta, std::string_view op);
  void PushResults(const OpInfo& info, const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                   std::span<const c10::IValue> arguments, torch::jit::Stack inferred);
  void CallInPlace(OpInfo& info, const c10::OperatorHandle& op, torch::jit::Stack& stack);

  Graph& graph_;
  Mesh mesh_;
  Phase phase_ = Phase::kForward;
  std::unordered_map<const c10::FunctionSchema*, OpInfo> infos_;
  // The scope of the forward op of each autograd node, by sequence number.
  std::unordered_map<uint64_t, ScopeId> scope_of_sequence_;
  ScopeId last_backward_scope_;
  Diagnostics diagnostics_;

  // The call being recorded; reused from call to call.
  CallBuilder builder_;
  std::vector<ValueId> operands_;
  std::vector<at::Tensor> operand_metas_;
  Attrs attrs_;
};

// Registers the recorder with ATen's dispatcher, once per process. Later calls do nothing.
void RegisterTracing();

}  // namespace heddle::run
