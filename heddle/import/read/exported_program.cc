#include "heddle/import/read/exported_program.h"

#include <algorithm>

#include "heddle/core/base/json.h"
#include "heddle/core/base/scanner.h"
#include "heddle/import/read/export_values.h"
#include "heddle/import/read/zip.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

constexpr int64_t kMajor = 8;

// The text of a field; empty if it is missing or not text.
std::string_view TextOf(JsonValue object, std::string_view key) {
  std::optional<JsonValue> field = object.Find(key);
  return field && field->is_string() ? field->string() : std::string_view();
}

class ExportReader {
 public:
  explicit ExportReader(const JsonDocument& document)
      : document_(document), values_(document, program_) {}

  Result<ForeignProgram> Read() {
    JsonValue root = document_.root();
    HEDDLE_RETURN_IF_ERROR(CheckVersion(root));
    HEDDLE_RETURN_IF_ERROR(ReadGroups(root));
    HEDDLE_RETURN_IF_ERROR(ReadView(root));
    std::optional<JsonValue> module = root.Find("graph_module");
    std::optional<JsonValue> graph = module ? module->Find("graph") : std::nullopt;
    if (!graph || !graph->is_object())
      return document_.Fail(
          root,
          "the file has no `graph_module` with a `graph`; expected a program of torch.export");
    if (std::optional<JsonValue> signature = module->Find("signature")) ReadSignature(*signature);
    HEDDLE_RETURN_IF_ERROR(ReadGraph(*graph));
    StateTypes();
    return std::move(program_);
  }

 private:
  struct InputSpec {
    InputRole role = InputRole::kPlain;
    WordId label = {};
    WordId unit = {};
    // Of optimizer state, the label of its parameter.
    WordId parameter = {};
  };
  struct OutputSpec {
    OutputRole role = OutputRole::kPlain;
    // The parameter or input that the output belongs to.
    WordId target = {};
    WordId label = {};
  };

  Status CheckVersion(JsonValue root) const {
    std::optional<JsonValue> header = root.Find("heddle");
    std::string_view format = TextOf(root, "heddle");
    if (!format.empty() && format != "graph 1")
      return document_.Fail(*header, "`heddle` is `{}`, expected `graph 1`", format);
    std::optional<JsonValue> version = root.Find("schema_version");
    std::optional<JsonValue> major = version ? version->Find("major") : std::nullopt;
    if (!major || major->is_null()) return Done{};
    if (!major->is_int())
      return document_.Fail(*major, "`major` of the schema version is {}, expected {}",
                            Describe(*major), kMajor);
    if (major->integer() == kMajor) return Done{};
    return document_.Fail(*major, "schema version {}, expected {}", major->integer(), kMajor);
  }

  // `"groups": {"0": 8}`
  Status ReadGroups(JsonValue root) {
    std::optional<JsonValue> groups = root.Find("groups");
    if (!groups || groups->is_null()) return Done{};
    if (!groups->is_object()) return document_.Fail(*groups, "`groups` is not an object");
    for (auto [name, size] : groups->fields()) {
      if (!size.is_int() || size.integer() < 1 || size.integer() > Mesh::kMaxRanks)
        return document_.Fail(size, "group `{}` has no number of ranks", name);
      program_.groups.push_back({program_.Word(name), size.integer()});
    }
    return Done{};
  }

  // `"view": "global"`
  Status ReadView(JsonValue root) {
    std::optional<JsonValue> view = root.Find("view");
    if (!view || view->is_null()) return Done{};
    std::string_view name = TextOf(root, "view");
    if (name != "global" && name != "local")
      return document_.Fail(*view, "`view` is {}, expected `global` or `local`",
                            view->is_string() ? fmt::format("`{}`", name) : Describe(*view));
    program_.global = name == "global";
    return Done{};
  }

  // --- The signature: roles of inputs and outputs

  void ReadSignature(JsonValue signature) {
    // A spec is a union: an object whose only field that is not null is its tag.
    auto each = [&](std::string_view list, auto&& add) {
      std::optional<JsonValue> specs = signature.Find(list);
      if (!specs) return;
      for (JsonValue spec : specs->items()) {
        std::pair<std::string_view, JsonValue> tagged("", spec);
        for (auto field : spec.fields()) {
          if (tagged.first.empty() && !field.second.is_null()) tagged = field;
        }
        add(tagged.first, tagged.second);
      }
    };
    each("input_specs",
         [&](std::string_view tag, JsonValue spec) { input_specs_.push_back(InputOf(tag, spec)); });
    each("output_specs", [&](std::string_view tag, JsonValue spec) {
      output_specs_.push_back(OutputOf(tag, spec));
    });
  }

  InputSpec InputOf(std::string_view tag, JsonValue spec) {
    if (tag.empty()) return {};
    auto word = [&](std::string_view key) { return program_.Word(TextOf(spec, key)); };
    if (tag == "parameter")
      return {.role = InputRole::kParam, .label = word("parameter_name"), .unit = word("unit")};
    if (tag == "buffer") return {.role = InputRole::kBuffer, .label = word("buffer_name")};
    if (tag == "tensor_constant")
      return {.role = InputRole::kBuffer, .label = word("tensor_constant_name")};
    if (tag == "optimizer_state")
      return {.role = InputRole::kOpt,
              .label = word("state_name"),
              .parameter = word("parameter_name")};
    if (tag == "hyper") return {.role = InputRole::kHyper, .label = word("label")};
    return {.role = InputRole::kBatch, .label = word("label")};
  }

  OutputSpec OutputOf(std::string_view tag, JsonValue spec) {
    if (tag.empty()) return {};
    OutputSpec output;
    output.role = tag == "loss_output"             ? OutputRole::kLoss
                  : tag == "gradient_to_parameter" ? OutputRole::kGrad
                  : tag.ends_with("_mutation")     ? OutputRole::kUpdate
                                                   : OutputRole::kMetric;
    for (std::string_view key : {"parameter_name", "buffer_name", "user_input_name"}) {
      if (!output.target) output.target = program_.Word(TextOf(spec, key));
    }
    output.label = program_.Word(TextOf(spec, "label"));
    return output;
  }

  // --- The graph

  Status ReadGraph(JsonValue graph) {
    auto field = [&](std::string_view name, bool is_list) -> std::optional<JsonValue> {
      std::optional<JsonValue> found = graph.Find(name);
      bool good = found && (is_list ? found->is_array() : found->is_object());
      return good ? found : std::nullopt;
    };
    std::optional<JsonValue> tensors = field("tensor_values", false);
    std::optional<JsonValue> inputs = field("inputs", true);
    std::optional<JsonValue> nodes = field("nodes", true);
    std::optional<JsonValue> outputs = field("outputs", true);
    std::string_view missing = !tensors   ? "tensor_values"
                               : !inputs  ? "inputs"
                               : !nodes   ? "nodes"
                               : !outputs ? "outputs"
                                          : "";
    if (!missing.empty()) return document_.Fail(graph, "the graph has no `{}`", missing);
    HEDDLE_RETURN_IF_ERROR(values_.ReadTensors(*tensors));
    if (std::optional<JsonValue> sizes = field("sym_int_values", false)) values_.ReadSizes(*sizes);
    HEDDLE_RETURN_IF_ERROR(ReadInputs(*inputs));
    for (JsonValue node : nodes->items()) HEDDLE_RETURN_IF_ERROR(ReadNode(node));
    return ReadOutputs(*outputs);
  }

  Status ReadInputs(JsonValue list) {
    size_t count = 0;
    for (JsonValue item : list.items()) {
      size_t position = count++;
      HEDDLE_TRY(ForeignValue value, values_.Argument(item));
      // A constant argument, which no node reads.
      if (value.kind != Kind::kName) continue;
      ForeignInput input;
      input.offset = values_.name_place();
      input.name = value.word;
      input.type = values_.TypeOf(input.name);
      if (input.type == nullptr) input.integer = values_.SizeOf(input.name);
      if (position < input_specs_.size()) {
        const InputSpec& spec = input_specs_[position];
        input.role = spec.role;
        input.label = spec.label;
        input.unit = spec.unit;
        if (spec.role == InputRole::kOpt) {
          HEDDLE_TRY(input.index, NumberOf(spec.parameter, item));
        }
      }
      program_.inputs.push_back(input);
    }
    program_.has_signature = input_specs_.size() == count && count > 0;
    return Done{};
  }

  // The number of a parameter among the parameters.
  Result<int64_t> NumberOf(WordId parameter, JsonValue place) const {
    int64_t number = 0;
    for (const InputSpec& spec : input_specs_) {
      if (spec.role != InputRole::kParam) continue;
      if (spec.label == parameter) return number;
      ++number;
    }
    return document_.Fail(place, "optimizer state of `{}`, which is not a parameter",
                          program_.text(parameter));
  }

  Status ReadOutputs(JsonValue list) {
    program_.output_call.name = program_.Word("output");
    size_t position = 0;
    for (JsonValue item : list.items()) {
      HEDDLE_TRY(ForeignValue value, values_.Argument(item));
      ForeignOutput output{.value = value, .offset = item.offset()};
      if (value.kind == Kind::kName) output.offset = values_.name_place();
      if (position < output_specs_.size()) {
        output.role = output_specs_[position].role;
        output.target = output_specs_[position].target;
        output.label = output_specs_[position].label;
      }
      program_.outputs.push_back(output);
      ++position;
    }
    return Done{};
  }

  Status ReadNode(JsonValue node) {
    size_t number = ++program_.statements;
    if (!node.is_object()) return document_.Fail(node, "node {} is not an object", number);
    ForeignCall call;
    call.offset = node.offset();
    call.first_arg = static_cast<uint32_t>(program_.args.size());
    call.first_result = static_cast<uint32_t>(program_.results.size());
    std::string_view target = TextOf(node, "target");
    if (target.empty()) return document_.Fail(node, "node {} has no `target`", number);
    if (target.starts_with("torch.ops.")) target.remove_prefix(10);
    if (target.starts_with("_operator.")) target.remove_prefix(1);
    call.target = program_.targets.Intern(target);
    HEDDLE_TRY(std::optional<JsonValue> inputs, ListOf(node, "inputs"));
    HEDDLE_TRY(std::optional<JsonValue> outputs, ListOf(node, "outputs"));
    if (inputs) HEDDLE_RETURN_IF_ERROR(ReadArgs(*inputs, call));
    HEDDLE_RETURN_IF_ERROR(ReadResults(outputs, TextOf(node, "name"), call));
    SetScope(node, call);
    if (std::string_view phase = TextOf(node, "phase"); !phase.empty())
      call.phase = ParsePhase(phase);
    program_.calls.push_back(call);
    return Done{};
  }

  // A list in a node; nullopt if it is missing or null.
  Result<std::optional<JsonValue>> ListOf(JsonValue node, std::string_view key) const {
    std::optional<JsonValue> list = node.Find(key);
    if (!list || list->is_null()) return std::optional<JsonValue>();
    if (!list->is_array())
      return document_.Fail(*list, "`{}` of node {} is not a list", key, program_.statements);
    return list;
  }

  Status ReadArgs(JsonValue inputs, ForeignCall& call) {
    for (JsonValue input : inputs.items()) {
      std::optional<JsonValue> value = input.Find("arg");
      if (!value || value->is_null())
        return document_.Fail(input, "node {} has an input without `arg`", program_.statements);
      ForeignArg arg;
      HEDDLE_TRY(arg.value, values_.Argument(*value));
      arg.name = program_.Word(TextOf(input, "name"));
      program_.args.push_back(arg);
      ++call.arg_count;
    }
    return Done{};
  }

  // Reads one tensor, several, or a list of them, each with its name. `given` is the name of the
  // whole call.
  Status ReadResults(const std::optional<JsonValue>& outputs, std::string_view given,
                     ForeignCall& call) {
    std::vector<ForeignValue> results;
    if (outputs) {
      for (JsonValue output : outputs->items()) {
        HEDDLE_TRY(ForeignValue value, values_.Argument(output));
        if (results.empty() && value.kind == Kind::kName) call.offset = values_.name_place();
        call.several |= value.kind == Kind::kList;
        if (value.kind == Kind::kList) {
          std::span<const ForeignValue> items = program_.items(value);
          results.insert(results.end(), items.begin(), items.end());
        } else {
          results.push_back(value);
        }
      }
    }
    call.several |= results.size() > 1;
    if (!call.several && results.size() == 1 && results[0].kind == Kind::kName) {
      call.name = results[0].word;
      return Done{};
    }
    if (IsValueName(given)) call.name = program_.Word(given);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].kind != Kind::kName) continue;
      WordId name = results[i].word;
      program_.results.push_back({.name = name, .index = static_cast<int64_t>(i)});
      if (!call.name) call.name = program_.Word(fmt::format("{}.all", program_.text(name)));
    }
    call.result_count = static_cast<uint32_t>(program_.results.size()) - call.first_result;
    return Done{};
  }

  // Sets the module of the node.
  void SetScope(JsonValue node, ForeignCall& call) {
    std::string_view scope = TextOf(node, "scope");
    if (std::optional<JsonValue> metadata = node.Find("metadata"); scope.empty() && metadata) {
      // `key,path,type;key,path,type`, the innermost last.
      std::string_view stack = TextOf(*metadata, "nn_module_stack");
      std::string_view last = stack.substr(stack.rfind(';') + 1);
      size_t comma = last.find(',');
      if (comma != std::string_view::npos)
        scope = last.substr(comma + 1, last.find(',', comma + 1) - comma - 1);
    }
    if (scope.starts_with("L['self'].")) scope.remove_prefix(10);
    while (scope.ends_with('.')) scope.remove_suffix(1);
    call.scope = program_.ScopeWord(scope);
  }

  // Types are stated by name, separately from the nodes.
  void StateTypes() {
    for (ForeignCall& call : program_.calls) {
      if (!call.several && call.result_count == 0) call.stated = values_.TypeOf(call.name);
    }
    for (ForeignResult& result : program_.results) result.stated = values_.TypeOf(result.name);
  }

  const JsonDocument& document_;
  ForeignProgram program_;
  ExportValues values_;
  // Indexed by position.
  std::vector<InputSpec> input_specs_;
  std::vector<OutputSpec> output_specs_;
};

Failure ArchiveFailure(const std::string& file, std::string message) {
  Failure failure = Error(Diag::kJson, "{}", message);
  failure.diagnostics[0].file = file;
  return failure;
}

}  // namespace

Result<ForeignProgram> ReadExportedProgram(const std::string& json, const std::string& file) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(json, file, Diag::kJson));
  return ExportReader(document).Read();
}

Result<std::string> ReadModelJson(std::string_view bytes, const std::string& file) {
  HEDDLE_TRY(ZipArchive archive, ZipArchive::Open(bytes, file));
  const ZipArchive::Entry* model = nullptr;
  for (const ZipArchive::Entry& entry : archive.entries()) {
    // All entries are in one folder, usually named like the file.
    std::string_view name = entry.name.substr(entry.name.find('/') + 1);
    bool is_model = name.ends_with(".json") && name.starts_with("models/");
    is_model |= entry.name.ends_with("serialized_exported_program.json");
    if (!is_model) continue;
    if (model != nullptr) {
      return ArchiveFailure(
          file, fmt::format("the archive has two models, `{}` and `{}`", model->name, entry.name));
    }
    model = &entry;
  }
  if (model == nullptr)
    return ArchiveFailure(file, "the archive has no models/*.json; torch.export.save writes one");
  return archive.Read(*model);
}

}  // namespace heddle
