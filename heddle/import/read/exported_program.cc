#include "heddle/import/read/exported_program.h"

#include <algorithm>
#include <unordered_map>

#include <simdjson.h>

#include "heddle/base/scanner.h"
#include "heddle/base/text.h"
#include "heddle/import/read/zip.h"

namespace heddle {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;
using Kind = ForeignValue::Kind;

constexpr int64_t kMajor = 8;
constexpr int kDeepest = 16;

struct DTypeCode {
  int64_t code;
  DType dtype;
  std::string_view word;
};
constexpr DTypeCode kDTypeCodes[] = {
    {1, DType::kU8, "torch.uint8"},
    {2, DType::kI8, "torch.int8"},
    {3, DType::kI16, "torch.int16"},
    {4, DType::kI32, "torch.int32"},
    {5, DType::kI64, "torch.int64"},
    {6, DType::kF16, "torch.float16"},
    {7, DType::kF32, "torch.float32"},
    {8, DType::kF64, "torch.float64"},
    {10, DType::kC64, "torch.complex64"},
    {11, DType::kC128, "torch.complex128"},
    {12, DType::kBool, "torch.bool"},
    {13, DType::kBF16, "torch.bfloat16"},
    {29, DType::kF8E4M3, "torch.float8_e4m3fn"},
    {30, DType::kF8E5M2, "torch.float8_e5m2"},
    {35, DType::kU64, "torch.uint64"},
};

const DTypeCode* FindDType(int64_t code) {
  auto at = std::ranges::find(kDTypeCodes, code, &DTypeCode::code);
  return at == std::end(kDTypeCodes) ? nullptr : at;
}

// A field of an object; null where there is none.
std::optional<element> Field(element e, std::string_view name) {
  element value;
  if (e[name].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}
std::optional<int64_t> Int(element e) {
  int64_t number = 0;
  return e.get(number) == simdjson::SUCCESS ? std::optional(number) : std::nullopt;
}
std::string_view Text(element e) {
  std::string_view text;
  return e.get(text) == simdjson::SUCCESS ? text : std::string_view();
}
std::string_view TextField(element e, std::string_view name) {
  std::optional<element> field = Field(e, name);
  return field ? Text(*field) : std::string_view();
}
// The tag of a union, and what it holds. A dataclass with all tags has one that is not null.
std::optional<std::pair<std::string_view, element>> Tagged(element e) {
  object fields;
  if (e.get(fields) != simdjson::SUCCESS) return std::nullopt;
  std::optional<std::pair<std::string_view, element>> found;
  for (auto [key, value] : fields) {
    if (!found || (found->second.is_null() && !value.is_null())) found = {key, value};
  }
  return found;
}

class ExportReader {
 public:
  explicit ExportReader(const std::string& file) : file_(file) {}

  Result<ForeignProgram> Read(std::string_view json) {
    simdjson::dom::parser parser;
    element root;
    simdjson::error_code error = parser.parse(json.data(), json.size()).get(root);
    if (error != simdjson::SUCCESS) return Fail("not JSON: {}", simdjson::error_message(error));
    HEDDLE_RETURN_IF_ERROR(CheckVersion(root));
    std::optional<element> module = Field(root, "graph_module");
    std::optional<element> graph = module ? Field(*module, "graph") : std::nullopt;
    if (!graph) return Fail("no `graph_module` with a `graph`; expected a program of torch.export");
    HEDDLE_RETURN_IF_ERROR(ReadGroups(root));
    HEDDLE_RETURN_IF_ERROR(ReadValues(*graph));
    std::optional<element> signature = Field(*module, "signature");
    HEDDLE_RETURN_IF_ERROR(ReadInputs(*graph, signature));
    HEDDLE_RETURN_IF_ERROR(ReadNodes(*graph));
    HEDDLE_RETURN_IF_ERROR(ReadOutputs(*graph, signature));
    return std::move(program_);
  }

 private:
  template <typename... Args>
  Failure Fail(fmt::format_string<Args...> format, Args&&... args) const {
    Failure failure = Error(Diag::kJson, format, std::forward<Args>(args)...);
    failure.diagnostics[0].file = file_;
    return failure;
  }
  std::string_view Keep(std::string_view text) { return program_.Keep(std::string(text)); }

  Status CheckVersion(element root) {
    std::string_view header = TextField(root, "heddle");
    if (!header.empty() && header != "graph 1")
      return Fail("`heddle` is `{}`, expected `graph 1`", header);
    std::optional<element> version = Field(root, "schema_version");
    std::optional<element> major = version ? Field(*version, "major") : std::nullopt;
    if (!major || Int(*major) == kMajor) return Done{};
    return Fail("schema version {}, expected {}", simdjson::minify(*major), kMajor);
  }

  // `"groups": {"0": 8}`
  Status ReadGroups(element root) {
    std::optional<element> groups = Field(root, "groups");
    object fields;
    if (!groups) return Done{};
    if (groups->get(fields) != simdjson::SUCCESS) return Fail("`groups` is not an object");
    for (auto [name, size] : fields) {
      std::optional<int64_t> ranks = Int(size);
      if (!ranks || *ranks < 1 || *ranks > Mesh::kMaxRanks)
        return Fail("group `{}` has no number of ranks", name);
      program_.groups.push_back({Keep(name), *ranks});
    }
    return Done{};
  }

  // --- Types

  // A size: a number, or an expression with the number that it had when the program was made.
  std::optional<int64_t> Size(element e) {
    if (std::optional<element> number = Field(e, "as_int")) return Int(*number);
    std::optional<element> expression = Field(e, "as_expr");
    std::optional<element> hint = expression ? Field(*expression, "hint") : std::nullopt;
    std::optional<element> number = hint ? Field(*hint, "as_int") : std::nullopt;
    if (number) ++symbolic_;
    return number ? Int(*number) : std::nullopt;
  }

  Status ReadValues(element graph) {
    object tensors;
    std::optional<element> given = Field(graph, "tensor_values");
    if (!given || given->get(tensors) != simdjson::SUCCESS)
      return Fail("the graph has no `tensor_values`");
    for (auto [name, meta] : tensors) {
      std::optional<element> code = Field(meta, "dtype");
      const DTypeCode* dtype = code ? FindDType(Int(*code).value_or(-1)) : nullptr;
      if (dtype == nullptr)
        return Fail("tensor `{}` has an element type that Heddle does not have", name);
      std::optional<element> sizes = Field(meta, "sizes");
      array list;
      if (!sizes || sizes->get(list) != simdjson::SUCCESS)
        return Fail("tensor `{}` has no `sizes`", name);
      Dims dims;
      for (element size : list) {
        std::optional<int64_t> number = Size(size);
        if (!number || *number < 0)
          return Fail("tensor `{}` has a size without a number or a hint", name);
        dims.push_back(*number);
      }
      if (!CheckedBytes(SymbolTable(), dims, dtype->dtype))
        return Fail("tensor `{}` exceeds 2^63 bytes", name);
      types_.emplace(Keep(name), Type::Tensor(dtype->dtype, std::move(dims)));
    }
    object numbers;
    std::optional<element> sizes = Field(graph, "sym_int_values");
    if (!sizes || sizes->get(numbers) != simdjson::SUCCESS) return Done{};
    for (auto [name, value] : numbers) {
      if (std::optional<int64_t> number = Size(value)) sizes_.emplace(Keep(name), *number);
    }
    return Done{};
  }

  std::optional<Type> TypeOf(std::string_view name) const {
    auto at = types_.find(name);
    return at == types_.end() ? std::nullopt : std::optional(at->second);
  }

  // --- Arguments

  ForeignValue List(const std::vector<ForeignValue>& items) {
    ForeignValue list{.kind = Kind::kList};
    list.first = static_cast<uint32_t>(program_.values.size());
    list.count = static_cast<uint32_t>(items.size());
    program_.values.insert(program_.values.end(), items.begin(), items.end());
    return list;
  }

  static double Number(element e) {
    double number = 0;
    if (e.get(number) == simdjson::SUCCESS) return number;
    std::string_view text = Text(e);
    double infinity = std::numeric_limits<double>::infinity();
    return text == "Infinity"    ? infinity
           : text == "-Infinity" ? -infinity
                                 : std::numeric_limits<double>::quiet_NaN();
  }

  ForeignValue Word(std::string_view tag, element e) {
    ForeignValue value{.kind = Kind::kWord};
    int64_t code = Int(e).value_or(-1);
    if (tag == "as_scalar_type") {
      const DTypeCode* dtype = FindDType(code);
      value.text = dtype == nullptr ? "torch.unknown" : dtype->word;
    } else if (tag == "as_memory_format") {
      value.text = code == 1   ? "torch.contiguous_format"
                   : code == 2 ? "torch.channels_last"
                               : "torch.preserve_format";
    } else if (tag == "as_device") {
      value.text = TextField(e, "type") == "cpu" ? "cpu" : "device";
    } else {
      value.text = "torch.strided";
    }
    return value;
  }

  // What a value of a graph may be called.
  Result<ForeignValue> Name(std::string_view name) {
    bool good = !name.empty() && std::ranges::all_of(name, [](char c) {
      return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kName) != 0;
    });
    if (!good) return Fail("{} is not a name of a value", Quoted(name));
    return ForeignValue{.kind = Kind::kName, .text = Keep(name)};
  }

  // A value without a tag: what lists hold.
  Result<ForeignValue> Plain(element e, int depth) {
    switch (e.type()) {
      case simdjson::dom::element_type::NULL_VALUE: return ForeignValue();
      case simdjson::dom::element_type::BOOL:
        return ForeignValue{.kind = Kind::kBool, .boolean = bool(e)};
      case simdjson::dom::element_type::INT64:
        return ForeignValue{.kind = Kind::kInt, .integer = int64_t(e)};
      case simdjson::dom::element_type::DOUBLE:
        return ForeignValue{.kind = Kind::kFloat, .number = double(e)};
      case simdjson::dom::element_type::STRING:
        return ForeignValue{.kind = Kind::kString, .text = Keep(Text(e))};
      case simdjson::dom::element_type::OBJECT: {
        std::string_view name = TextField(e, "name");
        if (!name.empty()) return Name(name);
        return Argument(e, depth);
      }
      case simdjson::dom::element_type::ARRAY: return Items(e, depth);
      default: return Fail("a number exceeds 64 bits");
    }
  }

  Result<ForeignValue> Items(element e, int depth) {
    if (depth > kDeepest) return Fail("an argument is nested more than {} deep", kDeepest);
    array list;
    if (e.get(list) != simdjson::SUCCESS) return Fail("an argument is not a list");
    std::vector<ForeignValue> items;
    for (element item : list) {
      HEDDLE_TRY(ForeignValue value, Plain(item, depth + 1));
      items.push_back(value);
    }
    return List(items);
  }

  Result<ForeignValue> Argument(element e, int depth) {
    auto tagged = Tagged(e);
    if (depth > kDeepest || !tagged) return Fail("an argument is not one of the kinds that exist");
    auto [tag, value] = *tagged;
    if (tag == "as_none" || value.is_null()) return ForeignValue();
    if (tag == "as_name") return Name(Text(value));
    if (tag == "as_tensor") return Name(TextField(value, "name"));
    if (tag == "as_float") return ForeignValue{.kind = Kind::kFloat, .number = Number(value)};
    if (tag == "as_scalar_type" || tag == "as_memory_format" || tag == "as_layout" ||
        tag == "as_device")
      return Word(tag, value);
    if (tag == "as_sym_int" || tag == "as_sym_bool" || tag == "as_sym_float" ||
        tag == "as_optional_tensor")
      return Argument(value, depth + 1);
    if (tag == "as_int" || tag == "as_bool" || tag == "as_string") return Plain(value, depth);
    if (value.is_array()) return Items(value, depth);
    // A graph, an object, a number of two parts: nothing that a graph of Heddle holds.
    return ForeignValue{.kind = Kind::kWord, .text = "torch.object"};
  }

  // --- The graph

  Status ReadInputs(element graph, const std::optional<element>& signature) {
    std::optional<element> inputs = Field(graph, "inputs");
    if (!inputs || !inputs->is_array()) return Fail("the graph has no `inputs`");
    std::optional<element> specs = signature ? Field(*signature, "input_specs") : std::nullopt;
    std::vector<element> roles;
    if (specs && specs->is_array()) {
      for (element spec : array(*specs)) roles.push_back(spec);
    }
    size_t i = 0;
    for (element one : array(*inputs)) {
      HEDDLE_TRY(ForeignValue value, Argument(one, 0));
      size_t at = i++;
      if (value.kind != Kind::kName) {
        // A constant that the caller passes: nothing reads it.
        continue;
      }
      ForeignInput input;
      input.offset = kNowhere;
      input.name = value.text;
      input.type = TypeOf(value.text);
      auto number = sizes_.find(value.text);
      if (!input.type && number != sizes_.end()) input.integer = number->second;
      if (at < roles.size()) SetRole(roles[at], input);
      program_.inputs.push_back(input);
    }
    program_.has_signature = roles.size() == i && i > 0;
    return Done{};
  }

  void SetRole(element spec, ForeignInput& input) {
    auto tagged = Tagged(spec);
    if (!tagged) return;
    auto [tag, value] = *tagged;
    input.role = InputRole::kBatch;
    if (tag == "parameter") {
      input.role = InputRole::kParam;
      input.label = Keep(TextField(value, "parameter_name"));
    } else if (tag == "buffer") {
      input.role = InputRole::kBuffer;
      input.label = Keep(TextField(value, "buffer_name"));
    } else if (tag == "tensor_constant") {
      input.role = InputRole::kBuffer;
      input.label = Keep(TextField(value, "tensor_constant_name"));
    }
  }

  Status ReadOutputs(element graph, const std::optional<element>& signature) {
    std::optional<element> outputs = Field(graph, "outputs");
    if (!outputs || !outputs->is_array()) return Fail("the graph has no `outputs`");
    std::optional<element> specs = signature ? Field(*signature, "output_specs") : std::nullopt;
    std::vector<element> roles;
    if (specs && specs->is_array()) {
      for (element spec : array(*specs)) roles.push_back(spec);
    }
    size_t i = 0;
    program_.outputs_offset = kNowhere;
    for (element one : array(*outputs)) {
      ForeignOutput output;
      HEDDLE_TRY(output.value, Argument(one, 0));
      if (i < roles.size()) SetRole(roles[i], output);
      ++i;
      program_.outputs.push_back(output);
    }
    return Done{};
  }

  void SetRole(element spec, ForeignOutput& output) {
    auto tagged = Tagged(spec);
    if (!tagged) return;
    auto [tag, value] = *tagged;
    output.role = OutputRole::kMetric;
    if (tag == "loss_output") output.role = OutputRole::kLoss;
    if (tag == "gradient_to_parameter") output.role = OutputRole::kGrad;
    if (tag.ends_with("_mutation")) output.role = OutputRole::kUpdate;
    for (std::string_view field : {"parameter_name", "buffer_name", "user_input_name"}) {
      std::string_view name = TextField(value, field);
      if (!name.empty()) output.target = Keep(name);
    }
  }

  Status ReadNodes(element graph) {
    std::optional<element> nodes = Field(graph, "nodes");
    if (!nodes || !nodes->is_array()) return Fail("the graph has no `nodes`");
    for (element node : array(*nodes)) {
      ForeignCall call;
      call.offset = kNowhere;
      std::string_view target = TextField(node, "target");
      if (target.empty()) return Fail("node {} has no `target`", program_.statements + 1);
      if (target.starts_with("torch.ops.")) target.remove_prefix(10);
      if (target.starts_with("_operator.")) target.remove_prefix(1);
      call.target = Keep(target);
      std::optional<element> inputs = Field(node, "inputs");
      if (inputs && inputs->is_array()) {
        for (element input : array(*inputs)) {
          std::optional<element> arg = Field(input, "arg");
          if (!arg) return Fail("node {} has an input without `arg`", program_.statements + 1);
          HEDDLE_TRY(ForeignValue value, Argument(*arg, 0));
          call.args.push_back({Keep(TextField(input, "name")), value});
        }
      }
      HEDDLE_RETURN_IF_ERROR(ReadResults(node, call));
      ReadPlace(node, call);
      ++program_.statements;
      program_.calls.push_back(std::move(call));
    }
    return Done{};
  }

  // One tensor; several, or a list of them, each by its name.
  Status ReadResults(element node, ForeignCall& call) {
    std::optional<element> outputs = Field(node, "outputs");
    std::vector<ForeignValue> values;
    bool list = false;
    if (outputs && outputs->is_array()) {
      for (element output : array(*outputs)) {
        HEDDLE_TRY(ForeignValue value, Argument(output, 0));
        list |= value.kind == Kind::kList;
        if (value.kind == Kind::kList) {
          for (const ForeignValue& item : program_.items(value)) values.push_back(item);
        } else {
          values.push_back(value);
        }
      }
    }
    call.several = list || values.size() > 1;
    if (Result<ForeignValue> name = Name(TextField(node, "name")); name.ok())
      call.name = name->text;
    if (!call.several && values.size() == 1 && values[0].kind == Kind::kName) {
      call.name = values[0].text;
      call.stated = TypeOf(call.name);
      return Done{};
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].kind != Kind::kName) continue;
      call.results.push_back({values[i].text, static_cast<int64_t>(i), {}, TypeOf(values[i].text)});
      if (call.name.empty()) call.name = program_.Keep(fmt::format("{}.all", values[i].text));
    }
    return Done{};
  }

  // The module that the node belongs to, and its phase.
  void ReadPlace(element node, ForeignCall& call) {
    std::string_view scope = TextField(node, "scope");
    std::optional<element> metadata = Field(node, "metadata");
    if (scope.empty() && metadata) {
      // `key,path,type;key,path,type`, the innermost last.
      std::string_view stack = TextField(*metadata, "nn_module_stack");
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
      call.scope = program_.Keep(std::move(clean));
    call.phase = ParsePhase(TextField(node, "phase"));
  }

  static constexpr size_t kNowhere = SIZE_MAX;

  const std::string& file_;
  ForeignProgram program_;
  std::unordered_map<std::string_view, Type> types_;
  std::unordered_map<std::string_view, int64_t> sizes_;
  size_t symbolic_ = 0;
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
      Failure several =
          Error(Diag::kJson, "the archive has two models, `{}` and `{}`", model->name, entry.name);
      several.diagnostics[0].file = file;
      return several;
    }
    model = &entry;
  }
  if (model == nullptr) {
    Failure none =
        Error(Diag::kJson, "the archive has no models/*.json; torch.export.save writes one");
    none.diagnostics[0].file = file;
    return none;
  }
  return archive.Read(*model);
}

}  // namespace heddle
