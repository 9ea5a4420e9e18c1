// The part of the parser that reads one graph. Not for use outside core/ir/.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ir/text/parse.h"
#include "heddle/core/ir/text/parse_type.h"

namespace heddle {

class GraphParser {
 public:
  GraphParser(Scanner& scan, Reporter& report, const Module& module, const OpTable& ops)
      : scan_(scan),
        report_(report),
        module_(module),
        ops_(ops),
        graph_("", ops),
        types_(scan, report, module, graph_),
        builder_(module.mesh, graph_.types().symbols()) {}

  // Parses from the word `graph` to the closing brace, and reports mistakes. Reserves space for the
  // given number of nodes. Returns false if the end of the graph cannot be found.
  bool Parse(size_t expected_nodes);
  Graph TakeGraph() { return std::move(graph_); }
  GraphSource TakeSource() { return std::move(source_); }

 private:
  struct NameRef {
    size_t offset;
    std::string_view name;
  };
  // An argument in the text: its first byte, the number of bytes that a message underlines, and its
  // first tensor in refs_.
  struct Argument {
    size_t offset;
    size_t width;
    size_t first_ref;
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
  bool ParseTensor();
  bool ParseTensorList();
  bool BindArguments();
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
  std::vector<Region> regions_;
  // Indexed by scope.
  std::vector<bool> has_region_;

  // The current node. Buffers are reused between nodes.
  std::vector<NameRef> result_names_;
  CallBuilder builder_;
  std::vector<Argument> arguments_;
  // The tensors of the call in the text. The builder refers to them by index, because a value may
  // be defined later.
  std::vector<NameRef> refs_;
  std::vector<ValueId> ref_numbers_;
  std::vector<NameRef> operand_refs_;
  std::vector<ValueId> operands_;
  std::vector<PlacedType> result_types_;
  std::vector<Keep> keeps_;
  std::vector<ResultSpec> results_;
  ScopeId scope_;
  uint8_t stream_ = 0;
  std::string_view last_scope_text_;
  ScopeId last_scope_;

  // Outputs, and operands that name a value defined later or nowhere.
  struct Pending {
    NameRef ref;
    bool is_output;
    // Index of the output, or in the operand pool.
    size_t index;
  };
  std::vector<Pending> pending_;
};

}  // namespace heddle
