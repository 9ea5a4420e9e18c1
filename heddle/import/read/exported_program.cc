#include "heddle/import/read/exported_program.h"

#include <algorithm>

#include "heddle/base/scanner.h"
#include "heddle/base/text.h"
#include "heddle/import/read/export_values.h"
#include "heddle/import/read/json_mistake.h"
#include "heddle/import/read/zip.h"

namespace heddle {
namespace {

using simdjson::dom::array;
using simdjson::dom::object;
using Kind = ForeignValue::Kind;

constexpr int64_t kMajor = 8;

class ExportReader {
 public:
  explicit ExportReader(const std::string& file) : file_(file), values_(file, program_) {}

  Result<ForeignProgram> Read(std::string_view json) {
    simdjson::dom::parser parser;
    JsonElement root;
    simdjson::error_code error = parser.parse(json.data(), json.size()).get(root);
    if (error != simdjson::SUCCESS) {
      Failure failure = Fail("not JSON: {}", simdjson::error_message(error));
      std::optional<size_t> at = FindJsonMistake(json);
      if (at)
        failure = {{SourceText(file_, json)
                        .At(std::move(failure.diagnostics[0]), std::min(*at, json.size()))}};
      return failure;
    }
    HEDDLE_RETURN_IF_ERROR(CheckVersion(root));
    std::optional<JsonElement> module = JsonField(root, "graph_module");
    std::optional<JsonElement> graph = module ? JsonField(*module, "graph") : std::nullopt;
    if (!graph) return Fail("no `graph_module` with a `graph`; expected a program of torch.export");
    HEDDLE_RETURN_IF_ERROR(ReadGroups(root));
    HEDDLE_RETURN_IF_ERROR(values_.Read(*graph));
    std::optional<JsonElement> signature = JsonField(*module, "signature");
    HEDDLE_RETURN_IF_ERROR(ReadInputs(*graph, signature));
    HEDDLE_RETURN_IF_ERROR(ReadNodes(*graph));
    HEDDLE_RETURN_IF_ERROR(ReadOutputs(*graph, signature));
    return std::move(program_);
  }

 private:
  template <typename... Args>
  Failure Fail(fmt::format_string<Args...> format, Args&&... args) const {
    return JsonFailure(file_, format, std::forward<Args>(args)...);
  }
  WordId Word(std::string_view text) { return program_.Word(text); }

  Status CheckVersion(JsonElement root) {
    std::string_view header = JsonTextField(root, "heddle");
    if (!header.empty() && header != "graph 1")
      return Fail("`heddle` is `{}`, expected `graph 1`", header);
    std::optional<JsonElement> version = JsonField(root, "schema_version");
    std::optional<JsonElement> major = version ? JsonField(*version, "major") : std::nullopt;
    if (!major || JsonInt(*major) == kMajor) return Done{};
    return Fail("schema version {}, expected {}", simdjson::minify(*major), kMajor);
  }

  // `"groups": {"0": 8}`
  Status ReadGroups(JsonElement root) {
    std::optional<JsonElement> groups = JsonField(root, "groups");
    object fields;
    if (!groups) return Done{};
    if (groups->get(fields) != simdjson::SUCCESS) return Fail("`groups` is not an object");
    for (auto [name, size] : fields) {
      std::optional<int64_t> ranks = JsonInt(size);
      if (!ranks || *ranks < 1 || *ranks > Mesh::kMaxRanks)
        return Fail("group `{}` has no number of ranks", name);
      program_.groups.push_back({Word(name), *ranks});
    }
    return Done{};
  }

  // --- The graph

  Status ReadInputs(JsonElement graph, const std::optional<JsonElement>& signature) {
    std::optional<JsonElement> inputs = JsonField(graph, "inputs");
    if (!inputs || !inputs->is_array()) return Fail("the graph has no `inputs`");
    std::optional<JsonElement> specs =
        signature ? JsonField(*signature, "input_specs") : std::nullopt;
    std::vector<JsonElement> roles;
    if (specs && specs->is_array()) {
      for (JsonElement spec : array(*specs)) roles.push_back(spec);
    }
    size_t i = 0;
    for (JsonElement one : array(*inputs)) {
      HEDDLE_TRY(ForeignValue value, values_.Argument(one));
      size_t at = i++;
      if (value.kind != Kind::kName) {
        // A constant that the caller passes: nothing reads it.
        continue;
      }
      ForeignInput input;
      input.offset = kNowhere;
      input.name = value.word;
      if (const Type* type = values_.TypeOf(value.word)) input.type = *type;
      if (!input.type) input.integer = values_.SizeOf(value.word);
      if (at < roles.size()) SetRole(roles[at], input);
      program_.inputs.push_back(std::move(input));
    }
    program_.has_signature = roles.size() == i && i > 0;
    return Done{};
  }

  void SetRole(JsonElement spec, ForeignInput& input) {
    auto tagged = JsonTagged(spec);
    if (!tagged) return;
    auto [tag, value] = *tagged;
    input.role = InputRole::kBatch;
    if (tag == "parameter") {
      input.role = InputRole::kParam;
      input.label = Word(JsonTextField(value, "parameter_name"));
    } else if (tag == "buffer") {
      input.role = InputRole::kBuffer;
      input.label = Word(JsonTextField(value, "buffer_name"));
    } else if (tag == "tensor_constant") {
      input.role = InputRole::kBuffer;
      input.label = Word(JsonTextField(value, "tensor_constant_name"));
    }
  }

  Status ReadOutputs(JsonElement graph, const std::optional<JsonElement>& signature) {
    std::optional<JsonElement> outputs = JsonField(graph, "outputs");
    if (!outputs || !outputs->is_array()) return Fail("the graph has no `outputs`");
    std::optional<JsonElement> specs =
        signature ? JsonField(*signature, "output_specs") : std::nullopt;
    std::vector<JsonElement> roles;
    if (specs && specs->is_array()) {
      for (JsonElement spec : array(*specs)) roles.push_back(spec);
    }
    size_t i = 0;
    program_.output_call.offset = kNowhere;
    program_.output_call.name = Word("output");
    for (JsonElement one : array(*outputs)) {
      ForeignOutput output;
      HEDDLE_TRY(output.value, values_.Argument(one));
      if (i < roles.size()) SetRole(roles[i], output);
      ++i;
      program_.outputs.push_back(output);
    }
    return Done{};
  }

  void SetRole(JsonElement spec, ForeignOutput& output) {
    auto tagged = JsonTagged(spec);
    if (!tagged) return;
    auto [tag, value] = *tagged;
    output.role = OutputRole::kMetric;
    if (tag == "loss_output") output.role = OutputRole::kLoss;
    if (tag == "gradient_to_parameter") output.role = OutputRole::kGrad;
    if (tag.ends_with("_mutation")) output.role = OutputRole::kUpdate;
    for (std::string_view field : {"parameter_name", "buffer_name", "user_input_name"}) {
      std::string_view name = JsonTextField(value, field);
      if (!name.empty()) output.target = Word(name);
    }
  }

  Status ReadNodes(JsonElement graph) {
    std::optional<JsonElement> nodes = JsonField(graph, "nodes");
    if (!nodes || !nodes->is_array()) return Fail("the graph has no `nodes`");
    for (JsonElement node : array(*nodes)) {
      ForeignCall call;
      call.offset = kNowhere;
      std::string_view target = JsonTextField(node, "target");
      if (target.empty()) return Fail("node {} has no `target`", program_.statements + 1);
      if (target.starts_with("torch.ops.")) target.remove_prefix(10);
      if (target.starts_with("_operator.")) target.remove_prefix(1);
      call.target = program_.targets.Intern(target);
      call.first_arg = static_cast<uint32_t>(program_.args.size());
      std::optional<JsonElement> inputs = JsonField(node, "inputs");
      if (inputs && inputs->is_array()) {
        for (JsonElement input : array(*inputs)) {
          std::optional<JsonElement> arg = JsonField(input, "arg");
          if (!arg) return Fail("node {} has an input without `arg`", program_.statements + 1);
          HEDDLE_TRY(ForeignValue value, values_.Argument(*arg));
          program_.args.push_back({Word(JsonTextField(input, "name")), value});
        }
      }
      call.arg_count = static_cast<uint32_t>(program_.args.size()) - call.first_arg;
      HEDDLE_RETURN_IF_ERROR(ReadResults(node, call));
      ReadPlace(node, call);
      ++program_.statements;
      program_.calls.push_back(call);
    }
    return Done{};
  }

  // One tensor; several, or a list of them, each by its name.
  Status ReadResults(JsonElement node, ForeignCall& call) {
    std::optional<JsonElement> outputs = JsonField(node, "outputs");
    std::vector<ForeignValue> values;
    call.first_result = static_cast<uint32_t>(program_.results.size());
    bool list = false;
    if (outputs && outputs->is_array()) {
      for (JsonElement output : array(*outputs)) {
        HEDDLE_TRY(ForeignValue value, values_.Argument(output));
        list |= value.kind == Kind::kList;
        if (value.kind == Kind::kList) {
          for (const ForeignValue& item : program_.items(value)) values.push_back(item);
        } else {
          values.push_back(value);
        }
      }
    }
    call.several = list || values.size() > 1;
    if (std::string_view given = JsonTextField(node, "name"); !given.empty()) {
      Result<ForeignValue> name = values_.Name(given);
      if (name.ok()) call.name = name->word;
    }
    if (!call.several && values.size() == 1 && values[0].kind == Kind::kName) {
      call.name = values[0].word;
      call.stated = values_.TypeOf(call.name);
      return Done{};
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].kind != Kind::kName) continue;
      WordId name = values[i].word;
      program_.results.push_back({name, static_cast<int64_t>(i), {}, values_.TypeOf(name)});
      if (!call.name) call.name = Word(fmt::format("{}.all", program_.text(name)));
    }
    call.result_count = static_cast<uint32_t>(program_.results.size()) - call.first_result;
    return Done{};
  }

  // The module that the node belongs to, and its phase.
  void ReadPlace(JsonElement node, ForeignCall& call) {
    std::string_view scope = JsonTextField(node, "scope");
    std::optional<JsonElement> metadata = JsonField(node, "metadata");
    if (scope.empty() && metadata) {
      // `key,path,type;key,path,type`, the innermost last.
      std::string_view stack = JsonTextField(*metadata, "nn_module_stack");
      std::string_view last = stack.substr(stack.rfind(';') + 1);
      std::vector<std::string_view> parts = Split(last, ',');
      if (parts.size() > 1) scope = parts[1];
    }
    if (scope.starts_with("L['self'].")) scope.remove_prefix(10);
    std::string clean;
    for (char c : scope) {
      bool good = (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kScope) != 0;
      clean += good ? c : '_';
    }
    while (clean.ends_with('.')) clean.pop_back();
    if (!clean.empty() && clean[0] != '.' && clean.find("..") == std::string::npos)
      call.scope = Word(clean);
    call.phase = ParsePhase(JsonTextField(node, "phase"));
  }

  static constexpr size_t kNowhere = SIZE_MAX;

  const std::string& file_;
  ForeignProgram program_;
  ExportValues values_;
};

}  // namespace

Result<ForeignProgram> ReadExportedProgram(std::string_view json, const std::string& file) {
  return ExportReader(file).Read(json);
}

Result<std::string> ReadModelJson(std::string_view bytes, const std::string& file) {
  HEDDLE_TRY(ZipArchive archive, ZipArchive::Open(bytes, file));
  const ZipArchive::Entry* model = nullptr;
  for (const ZipArchive::Entry& entry : archive.entries()) {
    // Everything stands in one folder, usually called as the file.
    std::string_view name = entry.name.substr(entry.name.find('/') + 1);
    bool is_model = name.ends_with(".json") && name.starts_with("models/");
    is_model |= entry.name.ends_with("serialized_exported_program.json");
    if (!is_model) continue;
    if (model != nullptr) {
      return JsonFailure(file, "the archive has two models, `{}` and `{}`", model->name,
                         entry.name);
    }
    model = &entry;
  }
  if (model == nullptr)
    return JsonFailure(file, "the archive has no models/*.json; torch.export.save writes one");
  return archive.Read(*model);
}

}  // namespace heddle
