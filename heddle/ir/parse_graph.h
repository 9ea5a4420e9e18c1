// The part of the parser that reads one graph. Not for use outside ir/.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/ir/parse.h"
#include "heddle/ir/parse_type.h"

namespace heddle {

class GraphParser {
 public:
  GraphParser(Scanner& scan, Reporter& report, const Module& module, const OpTable& ops)
      : scan_(scan),
        report_(report),
        module_(module),
        ops_(ops),
        graph_("", ops),
        types_(scan, report, module, graph_) {}

  // From the word `graph` to the closing brace. Mistakes are reported; what could be read is in graph() and source().
  // False if the text after it cannot be told apart any more.
  bool Parse();
  Graph TakeGraph() { return std::move(graph_); }
  GraphSource TakeSource() { return std::move(source_); }

 private:
  struct NameRef {
    size_t offset;
    std::string_view name;
  };
  // An attribute as written, until all of a call is known.
  struct WrittenAttr {
    size_t offset;
    std::string_view name;
    AttrValue value;
  };
  // A tensor argument passed by name.
  struct NamedOperand {
    size_t offset;
    std::string_view name;
    bool is_list;
    std::vector<NameRef> values;
  };
  // One positional argument: a tensor, or a list of them.
  struct Positional {
    size_t offset;
    bool is_list;
    uint32_t begin;
    uint32_t count;
  };

  bool ParseSignature();
  bool ParseInput();
  bool ParseOutput();
  bool ParseGlobal(GlobalType& global);
  bool ParseBody();
  bool ParseRegion(size_t begin);
  bool ParseScope(ScopeId& scope);
  bool ParseNode();
  bool ParseResultNames();
  bool ParseArguments();
  bool ParseNamedArgument();
  bool ParseOperand(std::vector<NameRef>& into);
  bool ParseOperandList(std::vector<NameRef>& into);
  bool BindKnown(const Op& op);
  bool BindOperands(const Op& op);
  bool BindAttrs(const Op& op);
  bool BindOpaque(std::string_view name);
  bool ParseResultTypes(bool& given);
  bool InferResultTypes(const Op& op, AttrsId attrs);
  bool ParseTail();
  bool ParseKeep();
  bool FinishNode(size_t begin, OpId op);
  void Poison(size_t begin);
  void Recover(size_t begin);

  ValueId Resolve(const NameRef& ref, size_t pool_index);
  bool CheckNewName(const NameRef& ref);
  void ResolvePending();
  bool ParseName(NameRef& ref);
  bool Expect(char c, std::string_view where);
  template <typename... Args>
  bool Fail(size_t offset, size_t width, Diag kind, fmt::format_string<Args...> format,
            Args&&... args) {
    report_.Report(offset, width, kind, format, std::forward<Args>(args)...);
    return false;
  }

  Scanner& scan_;
  Reporter& report_;
  const Module& module_;
  const OpTable& ops_;
  Graph graph_;
  GraphSource source_;
  TypeParser types_;
  Phase phase_ = Phase::kForward;

  // The node being read. Reused from node to node: a graph has many.
  std::vector<NameRef> result_names_;
  std::vector<NameRef> refs_;
  std::vector<Positional> positionals_;
  std::vector<NamedOperand> named_operands_;
  std::vector<WrittenAttr> written_;
  std::vector<NameRef> operand_refs_;
  std::vector<ValueId> operands_;
  std::vector<PlacedType> result_types_;
  std::vector<Keep> keeps_;
  std::vector<ResultSpec> results_;
  Attrs attrs_;
  ScopeId scope_;
  uint8_t stream_ = 0;
  std::string_view last_scope_text_;
  ScopeId last_scope_;

  // Outputs, and operands that name a value defined further down or nowhere.
  struct Pending {
    NameRef ref;
    bool is_output;
    // Of the output, or in the operand pool.
    size_t index;
  };
  std::vector<Pending> pending_;
};

}  // namespace heddle
