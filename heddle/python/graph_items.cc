#include "heddle/python/graph_items.h"

#include <nanobind/operators.h>
#include <nanobind/stl/complex.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "heddle/core/ir/text/print.h"
#include "heddle/report/launches.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace heddle::python {

template <>
NodeView Sequence<NodeView>::At(const Shared& shared, size_t i) {
  return {shared, NodeId(i)};
}
template <>
ValueView Sequence<ValueView>::At(const Shared& shared, size_t i) {
  return {shared, ValueId(i)};
}
template <>
OutputView Sequence<OutputView>::At(const Shared& shared, size_t i) {
  return {shared, i};
}

namespace {

template <typename View>
void BindSequence(nb::module_& module, const char* name, const char* item_name) {
  std::string get = fmt::format("def __getitem__(self, index: int) -> {}", item_name);
  std::string iterate =
      fmt::format("def __iter__(self) -> collections.abc.Iterator[{}]", item_name);
  nb::class_<Sequence<View>>(module, name, "A read-only sequence of views of one graph.")
      .def("__len__", [](const Sequence<View>& self) { return self.count; })
      .def(
          "__getitem__",
          [](const Sequence<View>& self, Py_ssize_t i) {
            auto count = static_cast<Py_ssize_t>(self.count);
            if (i < 0) i += count;
            if (i < 0 || i >= count) throw nb::index_error();
            return Sequence<View>::At(self.shared, static_cast<size_t>(i));
          },
          nb::sig(get.c_str()))
      .def(
          "__iter__",
          [](const Sequence<View>& self) {
            nb::list items;
            for (size_t i = 0; i < self.count; ++i)
              items.append(nb::cast(Sequence<View>::At(self.shared, i)));
            return nb::iter(items);
          },
          nb::sig(iterate.c_str()))
      .def("__repr__", [name](const Sequence<View>& self) {
        return fmt::format("<heddle.{}: {}>", name, self.count);
      });
}

nb::object DimToPython(Dim dim, const SharedModule& shared) {
  if (!IsSymbol(dim)) return nb::int_(dim);
  std::string text;
  AppendDim(text, dim, shared.module().mesh, shared.graph().types().symbols());
  return nb::str(text.c_str());
}

nb::object Text(std::string_view text) { return nb::str(text.data(), text.size()); }

// An attribute as Python has it: enumerators, element types and axes are their names in the text.
class AttrToPython {
 public:
  explicit AttrToPython(const SharedModule& shared) : shared_(shared) {}

  nb::object operator()(std::monostate) const { return nb::none(); }
  nb::object operator()(int64_t value) const { return DimToPython(value, shared_); }
  nb::object operator()(const std::vector<int64_t>& values) const {
    nb::list list;
    for (int64_t value : values) list.append(DimToPython(value, shared_));
    return list;
  }
  nb::object operator()(DType value) const { return Text(Name(value)); }
  nb::object operator()(MemoryFormat value) const { return Text(Name(value)); }
  nb::object operator()(Why value) const { return Text(Name(value)); }
  nb::object operator()(ReduceOp value) const { return Text(Name(value)); }
  nb::object operator()(const Axes& axes) const {
    nb::list list;
    for (AxisId axis : axes) list.append(Text(shared_.module().mesh[axis].name));
    return list;
  }
  template <typename T>
  nb::object operator()(const T& value) const {
    return nb::cast(value);
  }

 private:
  const SharedModule& shared_;
};

std::optional<ValueView> ValueOrNone(const Shared& shared, ValueId id) {
  if (!id) return std::nullopt;
  return ValueView{shared, id};
}

std::optional<int64_t> IndexOrNone(int64_t index) {
  if (index < 0) return std::nullopt;
  return index;
}

nb::tuple ShapeOf(const SharedModule& shared, TypeId type) {
  nb::list dims;
  for (Dim dim : shared.graph().types().dims(type)) dims.append(DimToPython(dim, shared));
  return nb::tuple(dims);
}

// The tensors of a call by the names of the schema; an opaque call has numbers for names.
nb::dict TensorsOf(const NodeView& self) {
  std::span<const ValueId> operands = self.graph().operands(self.id);
  const Attrs& attrs = self.graph().attrs(self.id);
  nb::dict out;
  size_t next = 0;
  auto take = [&]() { return nb::cast(ValueOrNone(self.shared, operands[next++])); };
  auto take_list = [&](size_t count) {
    nb::list list;
    for (size_t i = 0; i < count; ++i) list.append(take());
    return list;
  };
  if (!attrs.opaque_op.empty()) {
    size_t position = 0;
    for (const OpaqueSlot& slot : attrs.opaque_slots) {
      nb::object key = slot.name.empty() ? nb::object(nb::int_(position++)) : Text(slot.name);
      out[key] = slot.is_list ? nb::object(take_list(slot.count)) : take();
    }
    return out;
  }
  size_t lists = 0;
  for (const Arg& arg : self.graph().op(self.id).schema.args) {
    if (!IsOperand(arg.kind)) continue;
    bool is_list = IsListOperand(arg.kind);
    out[Text(arg.name)] = is_list ? nb::object(take_list(attrs.list_sizes[lists++])) : take();
  }
  return out;
}

// The type of an input or output on the whole mesh. `text`: the port as the signature has it.
template <typename Port>
std::string WholeType(const Shared& shared, const Port& port, const std::string& text) {
  const heddle::Value& value = shared->graph()[port.value];
  if (!port.global.type)
    return PrintType(shared->module(), shared->graph(), value.type, value.placement);
  constexpr std::string_view kOf = " of ";
  return text.substr(text.rfind(kOf) + kOf.size());
}

void BindNode(nb::module_& module) {
  nb::class_<NodeView>(module, "Node",
                       "A call of an op in a graph, at a position of its schedule.\n\n"
                       ">>> graph = heddle.Graph.parse('''heddle 1 local\n"
                       "... graph @g(%x: f32[4,6]) -> (%b) {\n"
                       "...   %a = aten.transpose.int(%x, dim0=0, dim1=1) @layers.0\n"
                       "...   %b = aten.relu(%a)\n"
                       "... }''')\n"
                       ">>> node = graph.nodes[0]\n"
                       ">>> node.op, node.scope, node.phase, node.attrs\n"
                       "('aten.transpose.int', 'layers.0', 'fwd', {'dim0': 0, 'dim1': 1})\n"
                       ">>> node.result.shape, node.operand(0).name\n"
                       "((6, 4), 'x')\n"
                       ">>> node.result.users[0].op\n"
                       "'aten.relu'\n")
      .def_prop_ro(
          "op", [](const NodeView& self) { return std::string(OpName(self.graph(), self.id)); },
          "The name of the op, as in the text: `aten.mm`.")
      .def_prop_ro(
          "index", [](const NodeView& self) { return self.id.index(); },
          "The position in the schedule, from 0.")
      .def_prop_ro(
          "operands",
          [](const NodeView& self) {
            std::vector<std::optional<ValueView>> out;
            for (ValueId id : self.graph().operands(self.id))
              out.push_back(ValueOrNone(self.shared, id));
            return out;
          },
          "The tensors that the node reads; None for an absent optional one.")
      .def(
          "operand",
          [](const NodeView& self, size_t i) {
            std::span<const ValueId> operands = self.graph().operands(self.id);
            if (i >= operands.size()) throw nb::index_error("the node has fewer operands");
            return ValueOrNone(self.shared, operands[i]);
          },
          "index"_a, "The operand with this number.")
      .def_prop_ro(
          "results",
          [](const NodeView& self) {
            std::vector<ValueView> out;
            for (ValueId id : self.graph().results(self.id)) out.push_back({self.shared, id});
            return out;
          },
          "The values that the node defines.")
      .def_prop_ro(
          "result",
          [](const NodeView& self) {
            if (self.node().result_count != 1) {
              std::string text =
                  fmt::format("{} has {} results; use `results`", OpName(self.graph(), self.id),
                              self.node().result_count);
              throw nb::value_error(text.c_str());
            }
            return ValueView{self.shared, self.node().first_result};
          },
          "The only result.")
      .def_prop_ro(
          "attrs",
          [](const NodeView& self) {
            nb::dict out;
            for (const Attr& attr : self.graph().attrs(self.id).list)
              out[attr.name.c_str()] = std::visit(AttrToPython(*self.shared), attr.value);
            return out;
          },
          nb::sig("def attrs(self) -> dict[str, typing.Any]"),
          "The arguments that are no tensors. Arguments with their default values are left out.")
      .def_prop_ro(
          "tensors", &TensorsOf,
          nb::sig("def tensors(self) -> dict[str | int, Value | list[Value | None] | None]"),
          "The operands by the names of the schema; those of an opaque op by name or position.")
      .def_prop_ro(
          "opaque",
          [](const NodeView& self) { return !self.graph().attrs(self.id).opaque_op.empty(); },
          "Whether the op is not in the table of ops.")
      .def_prop_ro(
          "scope", [](const NodeView& self) { return std::string(self.graph().scope(self.id)); },
          "The module that the node belongs to; empty for the root.")
      .def_prop_ro(
          "phase", [](const NodeView& self) { return std::string(Name(self.node().phase)); },
          "`fwd`, `bwd` or `opt`.")
      .def_prop_ro(
          "stream", [](const NodeView& self) { return static_cast<int>(self.node().stream); },
          "For a collective or copy, its stream.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const NodeView& self) { return self.id.index(); })
      .def("__str__",
           [](const NodeView& self) {
             return PrintNode(self.shared->module(), self.graph(), self.id);
           })
      .def("__repr__", [](const NodeView& self) {
        return fmt::format("<heddle.Node {}>",
                           PrintNode(self.shared->module(), self.graph(), self.id));
      });
}

void BindValue(nb::module_& module) {
  nb::class_<ValueView>(
      module, "Value",
      "A tensor of a graph: an input, or the result of a node.\n\n"
      ">>> graph = heddle.Graph.parse('''heddle 1 local\n"
      "... graph @g(%w: f32[4] param 0 \"up.weight\" unit \"up\") -> (loss %y) {\n"
      "...   %y = aten.sum(%w)\n"
      "... }''')\n"
      ">>> w = graph.inputs[0]\n"
      ">>> w.name, w.dtype, w.shape, w.role, w.index, w.label, w.unit\n"
      "('w', 'f32', (4,), 'param', 0, 'up.weight', 'up')\n"
      ">>> graph.value('y').producer.op\n"
      "'aten.sum'\n")
      .def_prop_ro(
          "name", [](const ValueView& self) { return std::string(self.graph().name(self.id)); },
          "The name, without `%`.")
      .def_prop_ro(
          "dtype",
          [](const ValueView& self) {
            return std::string(Name(self.graph().types().dtype(self.graph().type(self.id))));
          },
          "The element type, as in the text: `bf16`.")
      .def_prop_ro(
          "shape",
          [](const ValueView& self) { return ShapeOf(*self.shared, self.graph().type(self.id)); },
          nb::sig("def shape(self) -> tuple[int | str, ...]"),
          "The sizes. A size that depends on data or on the rank is its text.")
      .def_prop_ro(
          "type",
          [](const ValueView& self) {
            const heddle::Value& value = self.graph()[self.id];
            return PrintType(self.shared->module(), self.graph(), value.type, value.placement);
          },
          "The type with its placement, as in the text: `bf16[32{dp},1024]`.")
      .def_prop_ro(
          "nbytes",
          [](const ValueView& self) {
            return self.graph().types().bytes(self.graph().type(self.id)).value;
          },
          "The size in bytes, at most.")
      .def_prop_ro(
          "producer",
          [](const ValueView& self) -> std::optional<NodeView> {
            NodeId id = self.graph()[self.id].producer;
            if (!id) return std::nullopt;
            return NodeView{self.shared, id};
          },
          "The node that defines it; None for an input.")
      .def_prop_ro(
          "users",
          [](const ValueView& self) {
            std::vector<NodeView> out;
            for (const Use& use : self.shared->uses().of(self.id)) {
              if (out.empty() || out.back().id != use.node) out.push_back({self.shared, use.node});
            }
            return out;
          },
          "The nodes that read it, in the order of the schedule.")
      .def_prop_ro(
          "keep",
          [](const ValueView& self) -> std::optional<std::string> {
            Keep keep = self.graph()[self.id].keep;
            if (keep == Keep::kDefault) return std::nullopt;
            return std::string(Name(keep));
          },
          "The decision to keep it for backward or not, as `must_save`; None without a decision.")
      .def_prop_ro(
          "role",
          [](const ValueView& self) -> std::optional<std::string> {
            if (self.input() == nullptr || self.input()->role == InputRole::kPlain)
              return std::nullopt;
            return std::string(Name(self.input()->role));
          },
          "The role of an input: `param`, `buffer`, `batch`, ...")
      .def_prop_ro(
          "index",
          [](const ValueView& self) {
            return self.input() != nullptr ? IndexOrNone(self.input()->index) : std::nullopt;
          },
          "The number of a parameter; for optimizer state, its parameter's.")
      .def_prop_ro(
          "label",
          [](const ValueView& self) {
            return self.input() != nullptr ? self.input()->label : std::string();
          },
          "The full name of a parameter or buffer; the label of another input.")
      .def_prop_ro(
          "unit",
          [](const ValueView& self) {
            return self.input() != nullptr ? self.input()->unit : std::string();
          },
          "The FSDP unit of a parameter.")
      .def_prop_ro(
          "whole",
          [](const ValueView& self) -> std::optional<std::string> {
            if (self.input() == nullptr) return std::nullopt;
            return WholeType(self.shared, *self.input(),
                             PrintInput(self.shared->module(), self.graph(), *self.input()));
          },
          "The type of an input on the whole mesh, as in the text: `f32[1024{dp},64]`.")
      .def("__str__",
           [](const ValueView& self) {
             if (self.input() != nullptr)
               return PrintInput(self.shared->module(), self.graph(), *self.input());
             const heddle::Value& value = self.graph()[self.id];
             return fmt::format(
                 "%{}: {}", self.graph().name(self.id),
                 PrintType(self.shared->module(), self.graph(), value.type, value.placement));
           })
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const ValueView& self) { return self.id.index(); })
      .def("__repr__", [](const ValueView& self) {
        const heddle::Value& value = self.graph()[self.id];
        return fmt::format(
            "<heddle.Value %{}: {}>", self.graph().name(self.id),
            PrintType(self.shared->module(), self.graph(), value.type, value.placement));
      });
  nb::class_<OutputView>(module, "Output",
                         "An output of a graph: a value and its role.\n\n"
                         ">>> graph = heddle.Graph.parse('''heddle 1 local\n"
                         "... graph @g(%x: f32[4] batch) -> (loss %y) {\n"
                         "...   %y = aten.sum(%x)\n"
                         "... }''')\n"
                         ">>> output = graph.outputs[0]\n"
                         ">>> output.role, output.value.name\n"
                         "('loss', 'y')\n")
      .def_prop_ro(
          "value",
          [](const OutputView& self) {
            return ValueView{self.shared, self.output().value};
          },
          "The value.")
      .def_prop_ro(
          "role",
          [](const OutputView& self) -> std::optional<std::string> {
            if (self.output().role == OutputRole::kPlain) return std::nullopt;
            return std::string(Name(self.output().role));
          },
          "`loss`, `grad`, `update`, `metric` or `saved`.")
      .def_prop_ro(
          "index", [](const OutputView& self) { return IndexOrNone(self.output().index); },
          "For a gradient, the number of its parameter.")
      .def_prop_ro(
          "target",
          [](const OutputView& self) { return ValueOrNone(self.shared, self.output().target); },
          "For an update, the input that it replaces.")
      .def_prop_ro(
          "label", [](const OutputView& self) { return self.output().label; }, "Its name, if any.")
      .def_prop_ro(
          "whole",
          [](const OutputView& self) {
            return WholeType(
                self.shared, self.output(),
                PrintOutput(self.shared->module(), self.shared->graph(), self.output()));
          },
          "The type on the whole mesh, as in the text: `f32[1024{dp},64]`.")
      .def("__str__",
           [](const OutputView& self) {
             return PrintOutput(self.shared->module(), self.shared->graph(), self.output());
           })
      .def("__repr__", [](const OutputView& self) {
        return fmt::format("<heddle.Output {}>",
                           PrintOutput(self.shared->module(), self.shared->graph(), self.output()));
      });
}

}  // namespace

void BindGraphItems(nb::module_& module) {
  BindNode(module);
  BindValue(module);
  BindSequence<NodeView>(module, "Nodes", "Node");
  BindSequence<ValueView>(module, "Values", "Value");
  BindSequence<OutputView>(module, "Outputs", "Output");
}

}  // namespace heddle::python
