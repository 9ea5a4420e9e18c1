#include "heddle/python/graph.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/text/diff.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/python/errors.h"
#include "heddle/python/graph_items.h"
#include "heddle/report/stats.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace heddle::python {
namespace {

GraphView ParseGraph(std::string text, std::string file) {
  return ViewOf(
      Take(Unlocked([&] { return ParseModule(std::move(text), std::move(file), Ops()); })));
}

void BindGraphClass(nb::module_& module) {
  nb::class_<GraphView>(module, "Graph",
                        "A training step as a flat graph: a list of nodes in execution order.\n\n"
                        "Its text (docs/ir.md) is `str(graph)`; `Graph.parse` reads it back.\n"
                        "Graphs never change: passes return new ones.\n\n"
                        ">>> graph = heddle.Graph.parse('''heddle 1 local\n"
                        "... graph @g(%x: f32[4,6]) -> (%b) {\n"
                        "...   %a = aten.t(%x)\n"
                        "...   %b = aten.t(%a)\n"
                        "... }''')\n"
                        ">>> graph\n"
                        "<heddle.Graph @g: local, 2 nodes, 1 input, 1 output>\n"
                        ">>> [node.op for node in graph.nodes]\n"
                        "['aten.t', 'aten.t']\n"
                        ">>> heddle.Graph.parse(str(graph)) == graph\n"
                        "True\n")
      .def_static("parse", &ParseGraph, "text"_a, "file"_a = "text",
                  "Reads Heddle's text and verifies it. `file` is the name in messages.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            return ViewOf(Take(Unlocked([&]() -> Result<Module> {
              HEDDLE_TRY(std::string text, ReadFile(path.string()));
              return ParseModule(std::move(text), path.string(), Ops());
            })));
          },
          "path"_a, nb::sig("def load(path: str | os.PathLike[str]) -> Graph"),
          "Reads a file with Heddle's text.")
      .def(
          "save",
          [](const GraphView& self, const std::filesystem::path& path) {
            Take(Unlocked([&] { return WriteFile(path.string(), Print(self.module())); }));
          },
          "path"_a, nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the text to a file.")
      .def_prop_ro(
          "name", [](const GraphView& self) { return self.graph().name(); },
          "The name, without `@`.")
      .def_prop_ro(
          "view", [](const GraphView& self) { return std::string(Name(self.module().view)); },
          "`global`: the whole step, with whole tensors. `local`: what one rank runs.")
      .def_prop_ro(
          "mesh", [](const GraphView& self) { return ToPython(self.module().mesh); },
          nb::sig("def mesh(self) -> dict[str, int]"), "Axes and their sizes, the slowest first.")
      .def_prop_ro(
          "nodes",
          [](const GraphView& self) {
            return Sequence<NodeView>{self.shared, self.graph().node_count()};
          },
          "The nodes, in the order of execution.")
      .def_prop_ro(
          "inputs",
          [](const GraphView& self) {
            return Sequence<ValueView>{self.shared, self.graph().inputs().size()};
          },
          "The inputs.")
      .def_prop_ro(
          "outputs",
          [](const GraphView& self) {
            return Sequence<OutputView>{self.shared, self.graph().outputs().size()};
          },
          "The outputs.")
      .def(
          "value",
          [](const GraphView& self, std::string_view name) {
            ValueId id = self.graph().FindValue(name);
            if (!id) throw nb::key_error(fmt::format("no value `%{}`", name).c_str());
            return ValueView{self.shared, id};
          },
          "name"_a, "The value with this name.")
      .def_ro("remarks", &GraphView::remarks,
              "What the reader of a foreign graph assumed or lost, one sentence each.")
      .def(
          "stats",
          [](const GraphView& self) {
            return FromJson(
                Unlocked([&] { return ToJson(ComputeStats(self.module(), self.graph())).dump(); }));
          },
          nb::sig("def stats(self) -> dict[str, typing.Any]"),
          "Counts of nodes, parameters and collectives, and bytes: what `heddle stats --json` "
          "prints.\n\n"
          ">>> graph = heddle.Graph.parse('heddle 1 local\\ngraph @g(%x: f32[8]) -> (%x) {\\n}')\n"
          ">>> graph.stats()['input_bytes']\n"
          "32\n")
      .def_prop_ro(
          "hash",
          [](const GraphView& self) {
            return Format(Unlocked([&] { return StructuralHash(self.module()); }));
          },
          "A hash of everything but the names of values.")
      .def(
          "diff",
          [](const GraphView& self, const GraphView& other) {
            return Format(Unlocked([&] { return Diff(self.module(), other.module()); }));
          },
          "other"_a,
          "What was added (+), removed (-), changed (< >) or moved (^) from this graph to `other`; "
          "empty for equal graphs.")
      .def("__len__", [](const GraphView& self) { return self.graph().node_count(); })
      .def("__bool__", [](const GraphView&) { return true; })
      .def(
          "__eq__",
          [](const GraphView& self, nb::handle other) {
            return nb::isinstance<GraphView>(other) &&
                   self.module() == nb::cast<const GraphView&>(other).module();
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"), "Whether the texts are equal.")
      .def("__hash__",
           [](const GraphView& self) {
             return std::hash<std::string>()(Format(StructuralHash(self.module())));
           })
      .def("__str__",
           [](const GraphView& self) { return Unlocked([&] { return Print(self.module()); }); })
      .def("__repr__",
           [](const GraphView& self) {
             const heddle::Graph& graph = self.graph();
             return fmt::format("<heddle.Graph @{}: {}, {}, {}, {}>", graph.name(),
                                Name(self.module().view), Counted(graph.node_count(), "node"),
                                Counted(graph.inputs().size(), "input"),
                                Counted(graph.outputs().size(), "output"));
           })
      .def(
          "_repr_html_", [](nb::handle self) { return RichHtml("graph_html", self); },
          nb::sig("def _repr_html_(self) -> str"), "What a notebook shows.")
      .def("__getstate__", [](const GraphView& self) { return Print(self.module()); })
      .def("__setstate__", [](GraphView& self, const std::string& text) {
        new (&self) GraphView(ParseGraph(text, "pickle"));
      });
}

}  // namespace

GraphView ViewOf(Module module, std::vector<std::string> remarks) {
  if (module.graphs.size() != 1)
    Raise("Error", {MakeDiagnostic(Diag::kUsage, "the text has {}; heddle.Graph has one",
                                   Counted(module.graphs.size(), "graph"))});
  return {std::make_shared<const SharedModule>(std::move(module)), std::move(remarks)};
}

nb::dict ToPython(const Mesh& mesh) {
  nb::dict out;
  for (const MeshAxis& axis : mesh.axes()) out[axis.name.c_str()] = axis.size;
  return out;
}

nb::object FromJson(const std::string& text) {
  return nb::module_::import_("json").attr("loads")(text);
}

nb::object RichHtml(const char* function, nb::handle object) {
  return nb::module_::import_("heddle._rich").attr(function)(object);
}

void BindGraph(nb::module_& module) {
  BindGraphItems(module);
  BindGraphClass(module);
}

}  // namespace heddle::python
