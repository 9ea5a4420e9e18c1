#include "heddle/core/ir/text/print.h"

#include <algorithm>

#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// Columns where the type and the scope of a node begin, if the line is short enough. They are
// constants, so that a longer line elsewhere does not move others.
constexpr size_t kTypeColumn = 60;
constexpr size_t kScopeColumn = 88;
// Inputs and outputs are on one line if they fit into this width.
constexpr size_t kSignatureWidth = 100;

struct TensorParts {
  DType dtype;
  Space space;
  std::span<const Dim> dims;
};

void AppendPartials(std::string& out, const std::vector<Partial>& partials, const Mesh& mesh) {
  out += '{';
  for (size_t i = 0; i < partials.size(); ++i) {
    if (i != 0) out += ',';
    if (partials[i].op == ReduceOp::kSum) {
      out += '+';
    } else {
      out += Name(partials[i].op);
      out += ' ';
    }
    out += mesh[partials[i].axis].name;
  }
  out += '}';
}

// `placement` is null where types are local.
void AppendTensor(std::string& out, const TensorParts& tensor, const Placement* placement,
                  const Mesh& mesh, const SymbolTable& symbols) {
  if (tensor.dtype == DType::kNone) {
    out += "none";
    return;
  }
  if (tensor.space == Space::kHost) out += "host ";
  out += Name(tensor.dtype);
  out += '[';
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    if (d != 0) out += ',';
    AppendDim(out, tensor.dims[d], mesh, symbols);
    if (IsSymbol(tensor.dims[d]) && !symbols[tensor.dims[d]].is_chunk()) {
      out += "<=";
      AppendInt(out, symbols[tensor.dims[d]].bound);
    }
    if (placement != nullptr && !placement->split(d).empty()) {
      out += '{';
      AppendAxes(out, mesh, placement->split(d));
      out += '}';
    }
  }
  out += ']';
  if (placement != nullptr && !placement->partials.empty())
    AppendPartials(out, placement->partials, mesh);
}

class Printer {
 public:
  Printer(const Module& module, const Graph& graph) : module_(module), graph_(graph) {}

  void AppendGraph(std::string& out) {
    whole_graph_ = true;
    out += "graph @";
    out += graph_.name();
    AppendSignature(out);
    out += " {\n";
    for (const Region& region : graph_.regions()) AppendRegion(out, region);
    bool phases = std::ranges::any_of(
        graph_.nodes(), [&](NodeId id) { return graph_[id].phase != Phase::kForward; });
    std::optional<Phase> phase;
    for (NodeId id : graph_.nodes()) {
      if (phases && phase != graph_[id].phase) {
        phase = graph_[id].phase;
        out += ' ';
        out += Name(*phase);
        out += ":\n";
      }
      size_t begin = out.size();
      out += "  ";
      AppendNode(out, id, begin);
      out += '\n';
    }
    out += "}\n";
  }

  void AppendRegion(std::string& out, const Region& region) {
    out += " region @";
    AppendScope(out, graph_.scope_name(region.scope));
    if (!region.local.empty())
      out += fmt::format(" local=[{}]", Format(module_.mesh, region.local));
    if (region.why != Why::kTensor) out += fmt::format(" why={}", Name(region.why));
    out += '\n';
  }

  // Columns are relative to `line_begin`.
  void AppendNode(std::string& out, NodeId id, size_t line_begin) {
    const Node& node = graph_[id];
    for (uint32_t i = 0; i < node.result_count; ++i) {
      out += i == 0 ? "" : ", ";
      AppendValue(out, graph_.results(id)[i]);
    }
    if (node.result_count > 0) out += " = ";
    AppendCall(out, id);
    if (node.result_count > 0) {
      Pad(out, line_begin, kTypeColumn);
      out += ": ";
      AppendResultTypes(out, id);
    }
    if (node.scope) {
      Pad(out, line_begin, kScopeColumn);
      out += '@';
      AppendScope(out, graph_.scope(id));
    }
    if (node.stream != 0) {
      out += " stream=";
      AppendInt(out, node.stream);
    }
    AppendKeep(out, id);
  }

  void AppendType(std::string& out, TypeId type, PlacementId placement) {
    if (!type) {
      out += "<error>";
      return;
    }
    if (!whole_graph_ || placement != PlacementTable::kReplicated ||
        graph_.types().is_async(type)) {
      FormatType(out, type, placement);
      return;
    }
    if (type_texts_.size() <= type.index()) type_texts_.resize(graph_.types().size());
    std::string& text = type_texts_[type.index()];
    if (text.empty()) FormatType(text, type, placement);
    out += text;
  }

  std::string FormatInput(const Input& input) {
    std::string out;
    AppendValue(out, input.value);
    out += ": ";
    AppendType(out, graph_[input.value].type, graph_[input.value].placement);
    if (input.role != InputRole::kPlain) {
      out += ' ';
      out += Name(input.role);
    }
    if (input.index >= 0) {
      out += ' ';
      AppendInt(out, input.index);
    }
    if (!input.label.empty()) {
      out += ' ';
      AppendQuoted(out, input.label);
    }
    if (!input.unit.empty()) {
      out += " unit ";
      AppendQuoted(out, input.unit);
    }
    AppendGlobal(out, input.global);
    return out;
  }

  std::string FormatOutput(const Output& output) {
    std::string out(Name(output.role));
    if (output.index >= 0) {
      out += ' ';
      AppendInt(out, output.index);
    }
    if (!output.label.empty()) {
      out += ' ';
      AppendQuoted(out, output.label);
    }
    if (output.target) {
      out += ' ';
      AppendValue(out, output.target);
      out += " ->";
    }
    if (!out.empty()) out += ' ';
    AppendValue(out, output.value);
    AppendGlobal(out, output.global);
    return out;
  }

 private:
  static void Pad(std::string& out, size_t line_begin, size_t column) {
    size_t width = out.size() - line_begin;
    out.append(width + 1 < column ? column - width : 1, ' ');
  }

  void AppendValue(std::string& out, ValueId id) {
    if (!id) {
      out += "none";
      return;
    }
    out += '%';
    out += graph_.name(id);
  }

  static void AppendScope(std::string& out, std::string_view scope) {
    bool plain = !scope.empty() && std::ranges::all_of(scope, [](char c) {
      return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kScope) != 0;
    });
    if (plain) {
      out += scope;
    } else {
      AppendQuoted(out, scope);
    }
  }

  void AppendSignature(std::string& out) {
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    for (const Input& input : graph_.inputs()) inputs.push_back(FormatInput(input));
    for (const Output& output : graph_.outputs()) outputs.push_back(FormatOutput(output));
    AppendList(out, inputs, graph_.name().size() + 8);
    out += " -> ";
    AppendList(out, outputs, 8);
  }

  static void AppendList(std::string& out, const std::vector<std::string>& items, size_t width) {
    for (const std::string& item : items) width += item.size() + 2;
    bool one_line = width <= kSignatureWidth;
    out += '(';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out += ',';
      out += one_line ? (i == 0 ? "" : " ") : "\n    ";
      out += items[i];
    }
    if (!one_line) out += '\n';
    out += ')';
  }

  void AppendGlobal(std::string& out, const GlobalType& global) {
    if (!global.type) return;
    out += " of ";
    FormatTensor(out, global.type, global.placement, View::kGlobal);
  }

  void AppendResultTypes(std::string& out, NodeId id) {
    IdRange<ValueId> results = graph_.results(id);
    bool several = results.size() > 1;
    if (several) out += '(';
    for (size_t i = 0; i < results.size(); ++i) {
      if (i != 0) out += ", ";
      AppendType(out, graph_[results[i]].type, graph_[results[i]].placement);
    }
    if (several) out += ')';
  }

  void AppendKeep(std::string& out, NodeId id) {
    IdRange<ValueId> results = graph_.results(id);
    bool any =
        std::ranges::any_of(results, [&](ValueId v) { return graph_[v].keep != Keep::kDefault; });
    if (!any) return;
    out += " keep=";
    if (results.size() > 1) out += '[';
    for (size_t i = 0; i < results.size(); ++i) {
      if (i != 0) out += ',';
      out += Name(graph_[results[i]].keep);
    }
    if (results.size() > 1) out += ']';
  }

  // Required tensors by position, then optional tensors and attributes by name.
  void AppendCall(std::string& out, NodeId id) {
    const Attrs& attrs = graph_.attrs(id);
    if (graph_[id].op == kOpaqueOp) {
      AppendOpaqueCall(out, id, attrs);
      return;
    }
    const Schema& schema = graph_.op(id).schema;
    out += schema.name;
    out += '(';
    const char* comma = "";
    auto separate = [&] {
      out += comma;
      comma = ", ";
    };
    std::span<const ValueId> operands = graph_.operands(id);
    size_t at = 0;
    size_t lists = 0;
    bool named = false;
    for (const Arg& arg : schema.args) {
      if (!IsOperand(arg.kind)) continue;
      size_t count = IsListOperand(arg.kind) ? attrs.list_sizes[lists++] : 1;
      if (arg.kind == ArgKind::kOptionalTensor) {
        named |= static_cast<bool>(operands[at]);
      } else if (arg.kind == ArgKind::kTensorList || arg.kind == ArgKind::kOptionalTensorList) {
        separate();
        AppendOperandList(out, operands.subspan(at, count));
      } else {
        for (size_t i = 0; i < count; ++i) {
          separate();
          AppendValue(out, operands[at + i]);
        }
      }
      at += count;
    }
    if (named) {
      AppendNamed(out, schema, attrs, operands, separate);
    } else {
      for (const Attr& attr : attrs.list) AppendAttr(out, attr, separate);
    }
    out += ')';
  }

  // Optional tensors, merged with the attributes in schema order.
  void AppendNamed(std::string& out, const Schema& schema, const Attrs& attrs,
                   std::span<const ValueId> operands, auto&& separate) {
    size_t at = 0;
    size_t lists = 0;
    size_t next_attr = 0;
    for (const Arg& arg : schema.args) {
      if (IsOperand(arg.kind)) {
        if (arg.kind == ArgKind::kOptionalTensor && operands[at]) {
          separate();
          out += arg.name;
          out += '=';
          AppendValue(out, operands[at]);
        }
        at += IsListOperand(arg.kind) ? attrs.list_sizes[lists++] : 1;
      } else if (next_attr < attrs.list.size() && attrs.list[next_attr].name == arg.name) {
        AppendAttr(out, attrs.list[next_attr++], separate);
      }
    }
    // Attributes in another order, which no verified graph has, are printed last.
    for (; next_attr < attrs.list.size(); ++next_attr)
      AppendAttr(out, attrs.list[next_attr], separate);
  }

  void AppendAttr(std::string& out, const Attr& attr, auto&& separate) {
    separate();
    out += attr.name;
    out += '=';
    AppendAttrValue(out, attr.value, module_.mesh, graph_.types().symbols());
  }

  void AppendOperandList(std::string& out, std::span<const ValueId> operands) {
    out += '[';
    for (size_t i = 0; i < operands.size(); ++i) {
      if (i != 0) out += ", ";
      AppendValue(out, operands[i]);
    }
    out += ']';
  }

  void AppendOpaqueCall(std::string& out, NodeId id, const Attrs& attrs) {
    out += attrs.opaque_op;
    out += '(';
    const char* comma = "";
    auto separate = [&] {
      out += comma;
      comma = ", ";
    };
    size_t at = 0;
    for (const OpaqueSlot& slot : attrs.opaque_slots) {
      separate();
      if (!slot.name.empty()) {
        out += slot.name;
        out += '=';
      }
      std::span<const ValueId> operands = graph_.operands(id).subspan(at, slot.count);
      if (slot.is_list) {
        AppendOperandList(out, operands);
      } else {
        AppendValue(out, operands[0]);
      }
      at += slot.count;
    }
    for (const Attr& attr : attrs.list) AppendAttr(out, attr, separate);
    out += ')';
  }

  void FormatType(std::string& out, TypeId type, PlacementId placement) {
    const TypeTable& types = graph_.types();
    if (!types.is_async(type)) {
      FormatTensor(out, type, placement, module_.view);
      return;
    }
    out += "async ";
    std::span<const TypeId> elements = types.elements(type);
    if (elements.size() != 1) out += '(';
    for (size_t i = 0; i < elements.size(); ++i) {
      if (i != 0) out += ", ";
      FormatTensor(out, elements[i], PlacementTable::kReplicated, module_.view);
    }
    if (elements.size() != 1) out += ')';
  }

  void FormatTensor(std::string& out, TypeId type, PlacementId placement, View view) {
    const TypeTable& types = graph_.types();
    const Placement* placed = view == View::kGlobal ? &graph_.placements()[placement] : nullptr;
    AppendTensor(out, {types.dtype(type), types.space(type), types.dims(type)}, placed,
                 module_.mesh, types.symbols());
  }

  const Module& module_;
  const Graph& graph_;
  // Texts of types are cached only for a whole graph. For one node, building the table would take
  // longer than formatting its types.
  bool whole_graph_ = false;
  std::vector<std::string> type_texts_;
};

}  // namespace

std::string Print(const Module& module) {
  std::string out = "heddle 1 ";
  size_t nodes = 0;
  for (const Graph& graph : module.graphs) nodes += graph.node_count() + graph.inputs().size();
  out.reserve(128 * nodes + 256);
  out += Name(module.view);
  out += '\n';
  if (!module.mesh.empty()) {
    out += "mesh [";
    out += Format(module.mesh);
    out += "]\n";
  }
  for (size_t i = 0; i < module.graphs.size(); ++i) {
    if (i != 0) out += '\n';
    Printer(module, module.graphs[i]).AppendGraph(out);
  }
  return out;
}

std::string PrintNode(const Module& module, const Graph& graph, NodeId node) {
  std::string out;
  Printer(module, graph).AppendNode(out, node, 0);
  return out;
}

std::string PrintInput(const Module& module, const Graph& graph, const Input& input) {
  return Printer(module, graph).FormatInput(input);
}

std::string PrintOutput(const Module& module, const Graph& graph, const Output& output) {
  return Printer(module, graph).FormatOutput(output);
}

std::string PrintType(const Module& module, const Graph& graph, TypeId type,
                      PlacementId placement) {
  std::string out;
  Printer(module, graph).AppendType(out, type, placement);
  return out;
}

std::string FormatType(const Type& type, const Mesh& mesh, const SymbolTable& symbols) {
  std::string out;
  if (!type.async) {
    AppendTensor(out, {type.dtype, type.space, type.dims}, nullptr, mesh, symbols);
    return out;
  }
  out += type.elements.size() == 1 ? "async " : "async (";
  for (size_t i = 0; i < type.elements.size(); ++i) {
    if (i != 0) out += ", ";
    out += FormatType(type.elements[i], mesh, symbols);
  }
  if (type.elements.size() != 1) out += ')';
  return out;
}

bool operator==(const Module& a, const Module& b) { return Print(a) == Print(b); }

}  // namespace heddle
