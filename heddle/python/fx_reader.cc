#include "heddle/python/fx_reader.h"

#include <unordered_map>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/import/graph_builder.h"
#include "heddle/import/groups.h"
#include "heddle/import/read/torch_types.h"
#include "heddle/import/roles.h"
#include "heddle/python/errors.h"
#include "heddle/python/graph.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace heddle::python {
namespace {

constexpr const char* kCaptureError = "CaptureError";

template <typename... Args>
[[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) {
  Raise(kCaptureError, {MakeDiagnostic(Diag::kOperandKind, format, std::forward<Args>(args)...)});
}

std::string_view View(nb::handle text) { return nb::cast<std::string_view>(text); }
std::string Repr(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

// A field of a dictionary; none if it is missing or None.
nb::object Field(nb::handle dict, const char* key) {
  PyObject* found = PyDict_GetItemString(dict.ptr(), key);
  return found == nullptr ? nb::none() : nb::borrow(found);
}
std::string_view TextField(nb::handle dict, const char* key) {
  nb::object found = Field(dict, key);
  return found.is_none() ? std::string_view() : View(found);
}
std::optional<int64_t> NumberField(nb::handle dict, const char* key) {
  nb::object found = Field(dict, key);
  if (found.is_none()) return std::nullopt;
  return nb::cast<int64_t>(found);
}

// Item `i` of a list or tuple. The stable ABI has functions, not the faster macros.
PyObject* ItemAt(PyObject* sequence, Py_ssize_t i) {
  return PyTuple_Check(sequence) ? PyTuple_GetItem(sequence, i) : PyList_GetItem(sequence, i);
}

// Fills a ForeignProgram. Offsets are positions of nodes.
class Reader {
 public:
  Reader(const nb::list& inputs, const nb::list& outputs, nb::object scopes)
      : given_inputs_(inputs),
        given_outputs_(outputs),
        scopes_(std::move(scopes)),
        node_type_(nb::module_::import_("torch.fx").attr("Node")),
        tensor_type_(nb::module_::import_("torch").attr("Tensor")),
        overload_type_(nb::module_::import_("torch").attr("_ops").attr("OpOverload")),
        getitem_(nb::module_::import_("operator").attr("getitem")) {}

  ForeignProgram Read(const nb::list& nodes) {
    bool returns = false;
    for (nb::handle node : nodes) {
      std::string_view op = View(node.attr("op"));
      if (op == "placeholder") {
        AddInput(node);
      } else if (op == "output") {
        AddOutputs(node);
        returns = true;
      } else if (op == "call_function") {
        AddCall(node);
      } else {
        Refuse(
            "node `{}` is a {}, expected a call of an op; make_fx writes such graphs, and "
            "constants are lifted to buffers",
            View(node.attr("name")), op);
      }
      ++position_;
    }
    if (!returns) Refuse("the graph has no output");
    if (program_.inputs.size() != given_inputs_.size())
      Refuse("the graph has {}, and roles are given for {}",
             Counted(program_.inputs.size(), "placeholder"), given_inputs_.size());
    program_.statements_folded += calls_of_results_.size();
    program_.arguments = program_.inputs.size();
    program_.has_signature = true;
    program_.global = !communicates_;
    program_.AssignResults(calls_of_results_);
    return std::move(program_);
  }

 private:
  WordId NameOf(nb::handle node) {
    auto [at, fresh] = names_.try_emplace(node.ptr());
    if (fresh) at->second = program_.Word(View(node.attr("name")));
    return at->second;
  }

  DType TypeOfElements(nb::handle dtype) {
    auto [at, fresh] = dtypes_.try_emplace(dtype.ptr());
    if (fresh) {
      std::optional<DType> known = ParseTorchDType(Repr(dtype));
      if (!known) Refuse("{} has no element type of Heddle", Repr(dtype));
      at->second = *known;
    }
    return at->second;
  }

  bool IsTensor(nb::handle value) const {
    return PyObject_TypeCheck(value.ptr(), reinterpret_cast<PyTypeObject*>(tensor_type_.ptr())) !=
           0;
  }

  // The type of the tensor that a node makes; null if it makes none or several.
  const Type* TypeOf(nb::handle node, nb::handle value) {
    if (!IsTensor(value)) return nullptr;
    Dims dims;
    nb::object shape = value.attr("shape");
    for (nb::handle size : nb::borrow<nb::tuple>(shape)) {
      if (!PyLong_CheckExact(size.ptr()))
        Refuse("`{}` has size {}, which is not a number; Heddle needs fixed sizes",
               View(node.attr("name")), Repr(size));
      dims.push_back(nb::cast<int64_t>(size));
    }
    DType dtype = TypeOfElements(value.attr("dtype"));
    if (!CheckedBytes(SymbolTable(), dims, dtype))
      Refuse("`{}` has more than 2^63 bytes", View(node.attr("name")));
    return &program_.types.emplace_back(Type::Tensor(dtype, std::move(dims)));
  }

  ForeignValue ValueOf(nb::handle argument) {
    using Kind = ForeignValue::Kind;
    PyObject* object = argument.ptr();
    ForeignValue value;
    if (object == Py_None) return value;
    if (PyBool_Check(object)) {
      value.kind = Kind::kBool;
      value.boolean = object == Py_True;
    } else if (PyLong_Check(object)) {
      value.kind = Kind::kInt;
      value.integer = nb::cast<int64_t>(argument);
    } else if (PyFloat_Check(object)) {
      value.kind = Kind::kFloat;
      value.number = PyFloat_AsDouble(object);
    } else if (PyUnicode_Check(object)) {
      return ForeignValue::Of(Kind::kString, program_.Word(View(argument)));
    } else if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(node_type_.ptr())) != 0) {
      return ForeignValue::Of(Kind::kName, NameOf(argument));
    } else if (PyTuple_Check(object) || PyList_Check(object)) {
      std::vector<ForeignValue> items;
      Py_ssize_t count = PySequence_Size(object);
      items.reserve(static_cast<size_t>(count));
      for (Py_ssize_t i = 0; i < count; ++i) items.push_back(ValueOf(ItemAt(object, i)));
      return program_.TakeList(Kind::kList, items, 0);
    } else {
      return ForeignValue::Of(Kind::kWord, program_.Word(Repr(argument)));
    }
    return value;
  }

  void AddInput(nb::handle node) {
    size_t position = program_.inputs.size();
    if (position >= given_inputs_.size())
      Refuse("placeholder `{}` is number {}, and roles are given for {}", View(node.attr("name")),
             position, given_inputs_.size());
    nb::handle given = given_inputs_[position];
    ForeignInput input;
    input.offset = position_;
    input.name = NameOf(node);
    input.type = TypeOf(node, Field(node.attr("meta"), "val"));
    if (input.type == nullptr)
      Refuse("placeholder `{}` is not a tensor; its node needs a fake tensor in meta[\"val\"]",
             View(node.attr("name")));
    std::optional<InputRole> role = ParseInputRole(TextField(given, "role"));
    if (!role)
      Refuse("input `{}` has the role `{}`, expected param, buffer, batch, opt or hyper",
             View(node.attr("name")), TextField(given, "role"));
    input.role = *role;
    input.index = NumberField(given, "index").value_or(-1);
    input.label = program_.Word(TextField(given, "label"));
    input.unit = program_.Word(TextField(given, "unit"));
    program_.inputs.push_back(input);
  }

  // The input of parameter `index`.
  std::optional<size_t> ParamInput(int64_t index) const {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const ForeignInput& input = program_.inputs[i];
      if (input.role == InputRole::kParam && input.index == index) return i;
    }
    return std::nullopt;
  }

  static OutputRole OutputRoleOf(std::string_view name) {
    if (name == "buffer_update") return OutputRole::kUpdate;
    if (name == "result") return OutputRole::kMetric;
    std::optional<OutputRole> role = ParseOutputRole(name);
    if (!role)
      Refuse(
          "an output has the role `{}`, expected loss, grad, update, metric, buffer_update or "
          "result",
          name);
    return *role;
  }

  void AddOutputs(nb::handle node) {
    program_.output_call.name = program_.Word("output");
    program_.output_call.offset = position_;
    nb::object returned = node.attr("args")[0];
    nb::list values;
    if (PyTuple_Check(returned.ptr()) || PyList_Check(returned.ptr()))
      values = nb::list(returned);
    else
      values.append(returned);
    if (values.size() != given_outputs_.size())
      Refuse("the graph has {}, and roles are given for {}", Counted(values.size(), "output"),
             given_outputs_.size());
    std::unordered_map<int64_t, size_t> inputs_of_params;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].role == InputRole::kParam)
        inputs_of_params.emplace(program_.inputs[i].index, i);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      nb::handle given = given_outputs_[i];
      ForeignOutput output{.value = ValueOf(values[i]), .offset = position_};
      output.role = OutputRoleOf(TextField(given, "role"));
      output.label = program_.Word(TextField(given, "label"));
      if (std::optional<int64_t> input = NumberField(given, "input")) {
        if (*input < 0 || *input >= static_cast<int64_t>(program_.inputs.size()))
          Refuse("output {} belongs to input {}, and there are {}", i, *input,
                 program_.inputs.size());
        output.input = static_cast<size_t>(*input);
      } else if (output.role == OutputRole::kGrad) {
        auto param = inputs_of_params.find(NumberField(given, "index").value_or(-1));
        if (param == inputs_of_params.end())
          Refuse("output {} is the gradient of a parameter that is not an input", i);
        output.input = param->second;
      }
      program_.outputs.push_back(output);
    }
  }

  // `aten.add.Tensor`, `operator.add`
  TargetId TargetOf(nb::handle target) {
    auto [at, fresh] = targets_.try_emplace(target.ptr());
    if (!fresh) return at->second;
    std::string name;
    if (nb::isinstance(target, overload_type_) || !nb::hasattr(target, "__module__")) {
      name = nb::cast<std::string>(nb::str(target));
    } else {
      name = fmt::format("{}.{}", View(nb::str(target.attr("__module__"))),
                         View(nb::str(nb::getattr(target, "__name__", nb::str("call")))));
      if (name.starts_with('_')) name.erase(0, 1);
    }
    communicates_ |= !CollectiveName(name).empty();
    return at->second = program_.targets.Intern(name);
  }

  static bool IsList(nb::handle value) {
    return PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
  }
  // The number of item `i`, where the items of lists count instead of the lists.
  static int64_t FlatIndex(nb::handle results, int64_t i) {
    if (!IsList(results)) return i;
    int64_t flat = 0;
    for (int64_t k = 0; k < i && k < static_cast<int64_t>(nb::len(results)); ++k) {
      nb::handle item = ItemAt(results.ptr(), k);
      flat += IsList(item) ? static_cast<int64_t>(nb::len(item)) : 1;
    }
    return flat;
  }

  // `getitem`: the name of one result of another call, or of a list among its results.
  void AddItem(nb::handle node, nb::handle value) {
    nb::object args = node.attr("args");
    nb::object of = args[0];
    auto number = nb::cast<int64_t>(nb::object(args[1]));
    ++program_.statements;
    auto list = lists_.find(of.ptr());
    auto call = call_of_.find(of.ptr());
    if (list == lists_.end() && call == call_of_.end())
      Refuse("`{}` is an item of no call", View(node.attr("name")));
    ItemOf item = list != lists_.end()
                      ? ItemOf{list->second.call, list->second.index + number}
                      : ItemOf{call->second, FlatIndex(Field(of.attr("meta"), "val"), number)};
    if (IsList(value)) {
      lists_[node.ptr()] = item;
      ++program_.statements_folded;
      return;
    }
    program_.calls[item.call].several = true;
    program_.results.push_back(
        {.name = NameOf(node), .index = item.index, .stated = TypeOf(node, value)});
    calls_of_results_.push_back(item.call);
  }

  void AddCall(nb::handle node) {
    nb::object target = node.attr("target");
    nb::object meta = node.attr("meta");
    nb::object value = Field(meta, "val");
    if (target.is(getitem_)) return AddItem(node, value);
    ForeignCall call;
    call.offset = position_;
    call.target = TargetOf(target);
    call.name = NameOf(node);
    call.stated = TypeOf(node, value);
    call.several = IsList(value);
    // Lists among the arguments are stored elsewhere, so these stay together.
    std::vector<ForeignArg> given;
    for (nb::handle argument : nb::borrow<nb::tuple>(node.attr("args")))
      given.push_back({WordId(), ValueOf(argument)});
    for (auto [key, argument] : nb::borrow<nb::dict>(node.attr("kwargs")))
      given.push_back({program_.Word(View(key)), ValueOf(argument)});
    call.first_arg = static_cast<uint32_t>(program_.args.size());
    call.arg_count = static_cast<uint32_t>(given.size());
    program_.args.insert(program_.args.end(), given.begin(), given.end());
    std::string_view scope = TextField(meta, "heddle_scope");
    if (scope.empty() && scopes_.is_valid() && !scopes_.is_none()) {
      if (PyObject* found = PyDict_GetItem(scopes_.ptr(), nb::object(node.attr("name")).ptr()))
        scope = View(found);
    }
    call.scope = program_.ScopeWord(scope);
    if (std::string_view phase = TextField(meta, "heddle_phase"); !phase.empty()) {
      call.phase = ParsePhase(phase);
      if (!call.phase)
        Refuse("node `{}` has the phase `{}`, expected fwd, bwd or opt", View(node.attr("name")),
               phase);
    }
    call_of_[node.ptr()] = static_cast<uint32_t>(program_.calls.size());
    program_.calls.push_back(call);
    ++program_.statements;
  }

  nb::list given_inputs_;
  nb::list given_outputs_;
  nb::object scopes_;
  nb::object node_type_;
  nb::object tensor_type_;
  nb::object overload_type_;
  nb::object getitem_;
  ForeignProgram program_;
  // Of nodes.
  size_t position_ = 0;
  bool communicates_ = false;
  std::unordered_map<PyObject*, WordId> names_;
  std::unordered_map<PyObject*, DType> dtypes_;
  std::unordered_map<PyObject*, TargetId> targets_;
  std::unordered_map<PyObject*, uint32_t> call_of_;
  std::vector<uint32_t> calls_of_results_;
  // Lists among the results of calls, by their nodes: the call, and the number of the first item.
  struct ItemOf {
    uint32_t call;
    int64_t index;
  };
  std::unordered_map<PyObject*, ItemOf> lists_;
};

// Mistakes point at a node by its position; people want its text, its module and their own line.
void Describe(const nb::list& nodes, Diagnostics& diagnostics) {
  for (Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.line == 0 || diagnostic.line > nodes.size()) continue;
    nb::handle node = nodes[diagnostic.line - 1];
    nb::object meta = node.attr("meta");
    if (std::string_view scope = TextField(meta, "heddle_scope"); !scope.empty())
      diagnostic.message = fmt::format("in {}: {}", scope, diagnostic.message);
    // The innermost frame is the last line but one: `File "model.py", line 7, in forward`.
    std::string_view trace = Trim(TextField(meta, "stack_trace"));
    size_t frame = trace.rfind("File \"");
    if (frame != std::string_view::npos) {
      std::string_view rest = trace.substr(frame + 6);
      std::string_view file = rest.substr(0, rest.find('"'));
      size_t line = rest.find("line ");
      std::string_view number;
      if (line != std::string_view::npos)
        number = rest.substr(line + 5, rest.find_first_not_of("0123456789", line + 5) - line - 5);
      diagnostic.message += fmt::format("; {}:{}", file, number);
    }
    nb::object text = node.attr("format_node")();
    diagnostic.source =
        text.is_none() ? std::string(View(node.attr("name"))) : nb::cast<std::string>(text);
    diagnostic.column = 1;
    diagnostic.width = 1;
  }
}

Result<Imported> Build(const ForeignProgram& program, size_t nodes, const ImportOptions& options) {
  // A line for each node.
  std::string lines(nodes, '\n');
  SourceText source("graph", lines);
  HEDDLE_TRY(Imported imported, BuildGraph(program, source, options));
  HEDDLE_RETURN_IF_ERROR(SetRoles(program, options, imported));
  HEDDLE_RETURN_IF_ERROR(Verify(imported.module));
  return imported;
}

GraphView ReadFx(nb::object graph_module, nb::list inputs, nb::list outputs, nb::object scopes,
                 const std::string& mesh, const std::map<std::string, std::string>& groups) {
  nb::object graph = nb::getattr(graph_module, "graph");
  nb::list nodes = nb::list(nb::object(graph.attr("nodes")));
  ForeignProgram program = Reader(inputs, outputs, std::move(scopes)).Read(nodes);
  program.name = "step";
  const ImportOptions options{.mesh = mesh, .groups = {groups.begin(), groups.end()}};
  Result<Imported> built = Unlocked([&] { return Build(program, nodes.size(), options); });
  if (!built.ok()) {
    Describe(nodes, built.diagnostics());
    Raise(kCaptureError, built.diagnostics());
  }
  return ViewOf(std::move(built->module), std::move(built->remarks));
}

}  // namespace

void BindFxReader(nb::module_& module) {
  module.def(
      "read_fx", &ReadFx, "graph_module"_a, "inputs"_a, "outputs"_a, "scopes"_a = nb::none(),
      "mesh"_a = "", "groups"_a = std::map<std::string, std::string>(),
      nb::sig("def read_fx(graph_module: typing.Any, inputs: list[dict[str, typing.Any]], outputs: "
              "list[dict[str, typing.Any]], scopes: dict[str, str] | None = None, mesh: str = '', "
              "groups: dict[str, str] = {}) -> Graph"),
      R"(Reads a torch.fx.GraphModule of ATen calls, node by node.

`inputs` has a dictionary for each placeholder, in their order:

- `role`: `param`, `buffer`, `batch`, `opt` or `hyper`
- `index`: the number of a parameter in registration order; for `opt`, the number of the
  parameter whose state it is; otherwise None
- `label`: the full name of a parameter or buffer (`layers.0.up.weight`), the name of optimizer
  state (`exp_avg`), or what else the input is called
- `unit`: the FSDP unit of a parameter (`layers.0`), or None
- `tied`: other names of the same tensor; a graph has one name for each input

`outputs` has a dictionary for each output, in their order:

- `role`: `loss`, `grad`, `update`, `metric`, `buffer_update` or `result`
- `index`: for `grad`, the number of the parameter; otherwise None
- `input`: for `update` and `buffer_update`, the position of the input that gets this value
- `label`: its name, or an empty string

Facts of a node are in its `meta`: `heddle_phase` (`fwd`, `bwd` or `opt`), `heddle_scope` (the
path of its module), and `val` (the fake tensor). `scopes` gives paths of modules by the names of
nodes, for nodes without `heddle_scope`.

`mesh` has axes and sizes, as `dp=4,tp=2`, and `groups` the axes of each process group by its name.
Without them, each group has an axis of its own.

A graph without collectives is global: the whole step, which a plan spreads over ranks. A mistake
is a `CaptureError` that names the node, its module, and the line of the user's file if the node
has a `stack_trace`.)");
}

}  // namespace heddle::python
