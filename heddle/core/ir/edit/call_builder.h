// CallBuilder: from the arguments of a call, as a text or another program gives them, to what a node holds.
//
// A node holds its operands in the flat order of the op's schema, the lengths of tensor lists, and its attributes in the
// order of the schema, each of the kind that the schema states, defaults left out. Arguments arrive one by one: required
// tensors by position or by name, everything else by name. The parser builds its calls here, and so does whatever else
// reads calls.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// The attributes of a node of `op` in their one form: converted to the kinds of the schema, in its order, defaults left
// out. What the schema does not know, or is of another kind, stands unchanged at the end.
Attrs CanonicalAttrs(const Op& op, const Attrs& attrs);

// Fails if `value`, for argument `arg` of a call with these attributes, is a list with one item for each tensor and has
// another number of items than the call has tensors.
Status CheckEach(const Op& op, const Arg& arg, const AttrValue& value, const Attrs& attrs);

class CallBuilder {
 public:
  // What is wrong, and with which argument.
  struct Mistake {
    // Stands for the end of the call, where something is missing.
    static constexpr size_t kEnd = SIZE_MAX;
    // In the order of arrival.
    size_t argument = kEnd;
    // The tensor of the argument that is absent and may not be.
    std::optional<size_t> none;
    Diagnostic diagnostic;
  };

  // Both are for messages, and outlive the builder.
  CallBuilder(const Mesh& mesh, const SymbolTable& symbols) : mesh_(mesh), symbols_(symbols) {}

  // A new call: of an op of the table, or of one that the table does not know. `op` and all names outlive the call.
  void Begin(const Op& op) { Begin(&op, op.name()); }
  void BeginOpaque(std::string_view name) { Begin(nullptr, name); }

  // A none id stands for an absent tensor. Ids are handed back as they came; nothing asks a graph for them.
  void AddTensor(ValueId tensor, std::string_view name = {});
  void AddTensors(std::span<const ValueId> tensors, std::string_view name = {});
  void AddAttr(std::string_view name, AttrValue value);

  // Puts all in its place. If there is a mistake, the operands and attributes are of no use.
  std::optional<Mistake> Finish();
  std::span<const ValueId> operands() const { return operands_; }
  const Attrs& attrs() const { return attrs_; }

 private:
  struct TensorArg {
    size_t argument;
    std::string_view name;
    bool is_list;
    // In tensors_.
    uint32_t begin;
    uint32_t count;
  };
  struct AttrArg {
    size_t argument;
    std::string_view name;
    AttrValue value;
  };

  void Begin(const Op* op, std::string_view name);
  void AddTensorArg(std::span<const ValueId> tensors, bool is_list, std::string_view name);
  bool CheckName(std::string_view name);
  bool BindOperands();
  bool BindOperand(const Arg& arg, size_t& next);
  bool BindPositionals(const Arg& arg, size_t& next);
  bool BindTensors(const Arg& arg, const TensorArg& given);
  bool CheckOperandNames();
  bool BindAttrs();
  bool CheckAttrNames();
  bool CheckSymbols(const AttrArg& given);
  void FinishOpaque();
  template <typename... Args>
  bool Fail(size_t argument, Diag kind, fmt::format_string<Args...> format, Args&&... args) {
    mistake_ =
        Mistake{argument, std::nullopt, MakeDiagnostic(kind, format, std::forward<Args>(args)...)};
    return false;
  }
  bool FailNone(const Arg& arg, const TensorArg& given, size_t item);

  const Mesh& mesh_;
  const SymbolTable& symbols_;

  // The call being built. Reused from call to call.
  const Op* op_ = nullptr;
  std::string_view name_;
  size_t arguments_ = 0;
  std::vector<ValueId> tensors_;
  std::vector<TensorArg> positionals_;
  std::vector<TensorArg> named_;
  std::vector<AttrArg> given_attrs_;
  std::optional<Mistake> mistake_;
  std::vector<ValueId> operands_;
  Attrs attrs_;
};

}  // namespace heddle
