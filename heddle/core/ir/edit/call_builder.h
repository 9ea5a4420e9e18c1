// CallBuilder: converts the arguments of a call to the form that a node stores.
//
// A node stores its operands in the flat order of the op's schema, the lengths of tensor lists, and
// its attributes in schema order, converted to the kinds of the schema, without defaults. Arguments
// are added one by one: required tensors by position or name, all others by name. The parser and
// the importer build their calls with this class.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// The attributes of a node of `op` in canonical form: converted to the kinds of the schema, in its
// order, without defaults. Unknown attributes, and values of another kind, stay unchanged at the
// end.
Attrs CanonicalAttrs(const Op& op, const Attrs& attrs);

// Fails if `value`, for argument `arg` of a call with these attributes, is a list with one item per
// tensor but its length differs from the number of tensors.
Status CheckEach(const Op& op, const Arg& arg, const AttrValue& value, const Attrs& attrs);

class CallBuilder {
 public:
  // An error, and the argument it is about.
  struct Mistake {
    // The end of the call, where an argument is missing.
    static constexpr size_t kEnd = SIZE_MAX;
    // Index in the order of addition.
    size_t argument = kEnd;
    // The absent tensor of the argument, if it is required.
    std::optional<size_t> none;
    Diagnostic diagnostic;
  };

  // Both appear in messages, and must outlive the builder.
  CallBuilder(const Mesh& mesh, const SymbolTable& symbols) : mesh_(mesh), symbols_(symbols) {}

  // Starts a call of an op in the table, or of an unknown op. `op` and all names must outlive the
  // call.
  void Begin(const Op& op) { Begin(&op, op.name()); }
  void BeginOpaque(std::string_view name) { Begin(nullptr, name); }

  // A none id is an absent tensor. Ids are returned unchanged; no graph is consulted.
  void AddTensor(ValueId tensor, std::string_view name = {});
  void AddTensors(std::span<const ValueId> tensors, std::string_view name = {});
  void AddAttr(std::string_view name, AttrValue value);

  // Finishes the call. After an error, the operands and attributes are invalid.
  std::optional<Mistake> Finish();
  std::span<const ValueId> operands() const { return operands_; }
  const Attrs& attrs() const { return attrs_; }

 private:
  struct TensorArg {
    size_t argument;
    std::string_view name;
    bool is_list;
    // Index in tensors_.
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

  // The current call. Buffers are reused between calls.
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
