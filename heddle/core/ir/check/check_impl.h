// The parts of the verifier. Not for use outside core/ir/.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {

// Errors of a module. Only the first few hundred are stored, because a damaged module may have one
// in every node; further errors are counted.
struct FindingList {
  static constexpr size_t kMost = 256;
  std::vector<Finding> list;
  size_t more = 0;
};

// Collects the errors of one graph of a module.
class GraphReport {
 public:
  using Kind = Subject::Kind;

  GraphReport(const Module& module, size_t graph_index, FindingList& findings)
      : module_(module),
        graph_(module.graphs[graph_index]),
        graph_index_(graph_index),
        findings_(findings) {}

  const Module& module() const { return module_; }
  const Graph& graph() const { return graph_; }

  template <typename... Args>
  void Add(Kind kind, size_t index, size_t part, Diag diag, fmt::format_string<Args...> format,
           Args&&... args) {
    if (findings_.list.size() == FindingList::kMost) {
      ++findings_.more;
      return;
    }
    Subject subject{kind, graph_index_, static_cast<uint32_t>(index), static_cast<uint32_t>(part)};
    findings_.list.push_back({subject, MakeDiagnostic(diag, format, std::forward<Args>(args)...)});
  }
  template <typename... Args>
  void AddInput(size_t input, Diag diag, fmt::format_string<Args...> format, Args&&... args) {
    Add(Kind::kInput, input, 0, diag, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void AddOutput(size_t output, Diag diag, fmt::format_string<Args...> format, Args&&... args) {
    Add(Kind::kOutput, output, 0, diag, format, std::forward<Args>(args)...);
  }
  // Reports an error of a node or one of its operands, prefixed by the op's name.
  template <typename... Args>
  void AddNode(NodeId id, Diag diag, fmt::format_string<Args...> format, Args&&... args) {
    Add(Kind::kNode, id.index(), 0, diag, "{}: {}", OpName(id),
        fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void AddOperand(NodeId id, size_t operand, Diag diag, fmt::format_string<Args...> format,
                  Args&&... args) {
    Add(Kind::kOperand, id.index(), operand, diag, "{}: {}", OpName(id),
        fmt::format(format, std::forward<Args>(args)...));
  }

  std::string TypeText(TypeId type) const {
    return FormatType(graph_.types()[type], module_.mesh, graph_.types().symbols());
  }
  std::string_view OpName(NodeId id) const {
    return graph_[id].op == kOpaqueOp ? std::string_view(graph_.attrs(id).opaque_op)
                                      : graph_.op(id).name();
  }

 private:
  const Module& module_;
  const Graph& graph_;
  size_t graph_index_;
  FindingList& findings_;
};

// Regions, types and placements of values, roles of inputs and outputs.
void CheckSignature(GraphReport& report);
// Waits, streams, and storages that updates take over.
void CheckOrder(GraphReport& report);
// Saved values across the graphs of a module.
void CheckSaved(const Module& module, FindingList& findings);

}  // namespace heddle
