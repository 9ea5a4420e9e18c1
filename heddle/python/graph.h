// Read-only views of graphs for Python. Views share the module, so they outlive the Graph.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/graph.h"

namespace heddle::python {

// A module of one graph that never changes.
class SharedModule {
 public:
  explicit SharedModule(Module module) : module_(std::move(module)) {}

  const Module& module() const { return module_; }
  const heddle::Graph& graph() const { return module_.graphs[0]; }
  // Found at the first call.
  const Uses& uses() const {
    std::call_once(once_, [&] { uses_.emplace(graph()); });
    return *uses_;
  }

 private:
  Module module_;
  mutable std::once_flag once_;
  mutable std::optional<Uses> uses_;
};

struct GraphView {
  std::shared_ptr<const SharedModule> shared;
  // What the reader of a foreign graph assumed or lost.
  std::vector<std::string> remarks = {};

  const Module& module() const { return shared->module(); }
  const heddle::Graph& graph() const { return shared->graph(); }
};

// Fails unless the module has one graph.
GraphView ViewOf(Module module, std::vector<std::string> remarks = {});

// {"dp": 4, "tp": 2}
nanobind::dict ToPython(const Mesh& mesh);
// What Python's json module makes of the text.
nanobind::object FromJson(const std::string& text);
// The HTML that a function of heddle._rich writes for an object.
nanobind::object RichHtml(const char* function, nanobind::handle object);

void BindGraph(nanobind::module_& module);

}  // namespace heddle::python
