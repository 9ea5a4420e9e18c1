#include "heddle/import/read/exported_program.h"

#include <algorithm>

#include "heddle/base/scanner.h"
#include "heddle/import/read/export_signature.h"
#include "heddle/import/read/export_values.h"
#include "heddle/import/read/json_mistake.h"
#include "heddle/import/read/json_walk.h"
#include "heddle/import/read/zip.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

constexpr int64_t kMajor = 8;

class ExportReader {
 public:
  explicit ExportReader(const std::string& json)
      : walk_(json), values_(walk_, program_), signature_(walk_, program_) {
    // A node takes some hundreds of characters, and has one name.
    size_t likely = json.size() / 300;
    program_.words.Reserve(likely, 16 * likely);
    program_.calls.reserve(likely);
    program_.args.reserve(2 * likely);
  }

  // What could not be read is in walk().
  bool Read() {
    bool good = walk_.Root([&](std::string_view key, JsonValue value) {
      if (IsKey(key, "graph_module") && !has_module_ && JsonWalk::IsObject(value)) {
        has_module_ = true;
        return ReadModule(value);
      }
      if (IsKey(key, "groups") && !JsonWalk::IsNull(value)) return ReadGroups(value);
      return ReadVersion(key, value);
    });
    if (!good) return false;
    if (!has_graph_)
      return walk_.Fail(0, "no `graph_module` with a `graph`; expected a program of torch.export");
    Join();
    return true;
  }
  // Reads nothing but what says which kind of program it is.
  bool CheckVersion() {
    return walk_.Root(
        [&](std::string_view key, JsonValue value) { return ReadVersion(key, value); });
  }

  const JsonWalk& walk() const { return walk_; }
  ForeignProgram TakeProgram() { return std::move(program_); }

 private:
  struct Named {
    ForeignValue value;
    size_t place;
  };

  WordId Word(std::string_view text) { return program_.Word(text); }

  bool ReadVersion(std::string_view key, JsonValue value) {
    size_t at = walk_.Place(value);
    if (IsKey(key, "heddle")) {
      std::string_view header;
      if (!walk_.Text(value, header)) return false;
      return header.empty() || header == "graph 1" ||
             walk_.Fail(at, "`heddle` is `{}`, expected `graph 1`", header);
    }
    if (!IsKey(key, "schema_version") || !JsonWalk::IsObject(value)) return walk_.Skip(value);
    return walk_.Fields(value, [&](std::string_view name, JsonValue number) {
      if (!IsKey(name, "major") || JsonWalk::IsNull(number)) return walk_.Skip(number);
      size_t place = walk_.Place(number);
      std::optional<int64_t> major;
      if (!walk_.Int(number, major)) return false;
      if (!major)
        return walk_.Fail(place, "`major` of the schema version is no number, expected {}", kMajor);
      return major == kMajor || walk_.Fail(place, "schema version {}, expected {}", *major, kMajor);
    });
  }

  // `"groups": {"0": 8}`
  bool ReadGroups(JsonValue groups) {
    if (!JsonWalk::IsObject(groups))
      return walk_.Fail(walk_.Place(groups), "`groups` is not an object");
    return walk_.Fields(groups, [&](std::string_view name, JsonValue size) {
      size_t at = walk_.Place(size);
      std::optional<int64_t> ranks;
      if (!walk_.Int(size, ranks)) return false;
      if (!ranks || *ranks < 1 || *ranks > Mesh::kMaxRanks)
        return walk_.Fail(at, "group `{}` has no number of ranks", name);
      program_.groups.push_back({Word(name), *ranks});
      return true;
    });
  }

  bool ReadModule(JsonValue module) {
    return walk_.Fields(module, [&](std::string_view key, JsonValue value) {
      if (!JsonWalk::IsObject(value)) return walk_.Skip(value);
      if (IsKey(key, "graph") && !has_graph_) {
        has_graph_ = true;
        return ReadGraph(value);
      }
      if (IsKey(key, "signature") && !std::exchange(has_specs_, true))
        return signature_.Read(value);
      return walk_.Skip(value);
    });
  }

  // --- The graph

  bool ReadGraph(JsonValue graph) {
    size_t at = walk_.Place(graph);
    bool inputs = false;
    bool outputs = false;
    bool nodes = false;
    bool tensors = false;
    bool sizes = false;
    bool good = walk_.Fields(graph, [&](std::string_view key, JsonValue value) {
      auto is = [&](const auto& name, bool array, bool& had) {
        bool kind = array ? JsonWalk::IsArray(value) : JsonWalk::IsObject(value);
        return IsKey(key, name) && kind && !std::exchange(had, true);
      };
      if (is("inputs", true, inputs)) return ReadNamed(value, inputs_);
      if (is("outputs", true, outputs)) return ReadNamed(value, outputs_);
      if (is("nodes", true, nodes))
        return walk_.Items(value, [&](JsonValue node) { return ReadNode(node); });
      if (is("tensor_values", false, tensors)) return values_.ReadTensors(value);
      if (is("sym_int_values", false, sizes)) return values_.ReadSizes(value);
      return walk_.Skip(value);
    });
    if (!good) return false;
    std::string_view missing = !tensors   ? "tensor_values"
                               : !inputs  ? "inputs"
                               : !nodes   ? "nodes"
                               : !outputs ? "outputs"
                                          : "";
    return missing.empty() || walk_.Fail(at, "the graph has no `{}`", missing);
  }

  bool ReadNamed(JsonValue list, std::vector<Named>& named) {
    return walk_.Items(list, [&](JsonValue item) {
      Named one{{}, walk_.Place(item)};
      if (!values_.Argument(item, one.value)) return false;
      if (one.value.kind == Kind::kName) one.place = values_.name_place();
      named.push_back(one);
      return true;
    });
  }

  bool ReadNode(JsonValue node) {
    ForeignCall call;
    call.offset = walk_.Place(node);
    if (!JsonWalk::IsObject(node))
      return walk_.Fail(call.offset, "node {} is not an object", program_.statements + 1);
    call.first_arg = static_cast<uint32_t>(program_.args.size());
    call.first_result = static_cast<uint32_t>(program_.results.size());
    results_.clear();
    results_are_list_ = false;
    results_place_ = call.offset;
    NodeTexts texts;
    bool good = walk_.Fields(node, [&](std::string_view key, JsonValue value) {
      if (IsKey(key, "target")) return TextOnce(value, texts.target);
      if (IsKey(key, "inputs")) return ReadArgs(value, call);
      if (IsKey(key, "outputs")) return ReadResults(value);
      if (IsKey(key, "name")) return TextOnce(value, texts.name);
      if (IsKey(key, "scope")) return TextOnce(value, texts.scope);
      if (IsKey(key, "phase")) return TextOnce(value, texts.phase);
      if (IsKey(key, "metadata") && JsonWalk::IsObject(value))
        return walk_.Fields(value, [&](std::string_view name, JsonValue fact) {
          return IsKey(name, "nn_module_stack") ? TextOnce(fact, texts.stack) : walk_.Skip(fact);
        });
      return walk_.Skip(value);
    });
    if (!good) return false;
    std::string_view target = texts.target;
    if (target.empty())
      return walk_.Fail(call.offset, "node {} has no `target`", program_.statements + 1);
    if (target.starts_with("torch.ops.")) target.remove_prefix(10);
    if (target.starts_with("_operator.")) target.remove_prefix(1);
    call.target = program_.targets.Intern(target);
    call.offset = results_place_;
    NameResults(texts.name, call);
    SetPlace(texts, call);
    ++program_.statements;
    program_.calls.push_back(call);
    return true;
  }

  struct NodeTexts {
    std::string_view target;
    std::string_view name;
    std::string_view scope;
    std::string_view phase;
    std::string_view stack;
  };
  // Of two fields of one name the first counts.
  bool TextOnce(JsonValue value, std::string_view& text) {
    return text.empty() ? walk_.Text(value, text) : walk_.Skip(value);
  }

  bool ReadArgs(JsonValue inputs, ForeignCall& call) {
    if (JsonWalk::IsNull(inputs) || call.arg_count > 0) return walk_.Skip(inputs);
    if (!JsonWalk::IsArray(inputs))
      return walk_.Fail(walk_.Place(inputs), "`inputs` of node {} is not a list",
                        program_.statements + 1);
    return walk_.Items(inputs, [&](JsonValue input) { return ReadArg(input, call.arg_count++); });
  }

  // The argument at a position of a call.
  bool ReadArg(JsonValue input, size_t position) {
    ForeignArg arg;
    std::string_view name;
    bool good = values_.IsTensorInput(input, name, arg.value) ? JsonWalk::PassObject(input)
                                                              : WalkArg(input, name, arg.value);
    if (!good) return false;
    arg.name = ArgWord(position, name);
    program_.args.push_back(arg);
    return true;
  }

  bool WalkArg(JsonValue input, std::string_view& name, ForeignValue& arg) {
    size_t at = walk_.Place(input);
    bool has_value = false;
    name = {};
    bool good = !JsonWalk::IsObject(input) ||
                walk_.Fields(input, [&](std::string_view key, JsonValue value) {
                  if (IsKey(key, "name")) return TextOnce(value, name);
                  if (!IsKey(key, "arg") || has_value || JsonWalk::IsNull(value))
                    return walk_.Skip(value);
                  has_value = true;
                  return values_.Argument(value, arg);
                });
    if (!good) return false;
    return has_value ||
           walk_.Fail(at, "node {} has an input without `arg`", program_.statements + 1);
  }

  // It is likely called as that of the call before.
  WordId ArgWord(size_t position, std::string_view name) {
    if (position >= arg_words_.size()) arg_words_.resize(position + 1);
    WordId& word = arg_words_[position];
    if (program_.text(word) != name) word = Word(name);
    return word;
  }

  bool ReadResults(JsonValue outputs) {
    if (JsonWalk::IsNull(outputs) || !results_.empty()) return walk_.Skip(outputs);
    if (!JsonWalk::IsArray(outputs))
      return walk_.Fail(walk_.Place(outputs), "`outputs` of node {} is not a list",
                        program_.statements + 1);
    return walk_.Items(outputs, [&](JsonValue output) {
      ForeignValue value;
      if (!values_.Argument(output, value)) return false;
      if (results_.empty() && value.kind == Kind::kName) results_place_ = values_.name_place();
      if (value.kind != Kind::kList) {
        results_.push_back(value);
        return true;
      }
      results_are_list_ = true;
      for (const ForeignValue& item : program_.items(value)) results_.push_back(item);
      return true;
    });
  }

  // One tensor; several, or a list of them, each by its name.
  void NameResults(std::string_view given, ForeignCall& call) {
    call.several = results_are_list_ || results_.size() > 1;
    if (!call.several && results_.size() == 1 && results_[0].kind == Kind::kName) {
      call.name = results_[0].word;
      return;
    }
    if (ExportValues::IsName(given)) call.name = Word(given);
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].kind != Kind::kName) continue;
      WordId name = results_[i].word;
      program_.results.push_back({.name = name, .index = static_cast<int64_t>(i)});
      if (!call.name) call.name = Word(fmt::format("{}.all", program_.text(name)));
    }
    call.result_count = static_cast<uint32_t>(program_.results.size()) - call.first_result;
  }

  // The module that the node belongs to, and its phase.
  void SetPlace(const NodeTexts& texts, ForeignCall& call) {
    std::string_view scope = texts.scope;
    if (scope.empty()) {
      // `key,path,type;key,path,type`, the innermost last.
      std::string_view last = texts.stack.substr(texts.stack.rfind(';') + 1);
      size_t comma = last.find(',');
      if (comma != std::string_view::npos)
        scope = last.substr(comma + 1, last.find(',', comma + 1) - comma - 1);
    }
    if (scope.starts_with("L['self'].")) scope.remove_prefix(10);
    while (scope.ends_with('.')) scope.remove_suffix(1);
    if (!scope.empty() && scope[0] != '.' && scope.find("..") == std::string_view::npos)
      call.scope = ScopeWord(scope);
    if (!texts.phase.empty()) call.phase = ParsePhase(texts.phase);
  }

  // What no scope may have becomes `_`.
  WordId ScopeWord(std::string_view scope) {
    auto good = [](char c) {
      return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kScope) != 0;
    };
    if (std::ranges::all_of(scope, good)) return Word(scope);
    std::string clean(scope);
    std::ranges::replace_if(clean, std::not_fn(good), '_');
    return Word(clean);
  }

  // --- What stands in several places of the file

  void Join() {
    for (ForeignCall& call : program_.calls) {
      if (!call.several && call.result_count == 0) call.stated = values_.TypeOf(call.name);
    }
    for (ForeignResult& result : program_.results) result.stated = values_.TypeOf(result.name);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      // A constant that the caller passes: nothing reads it.
      if (inputs_[i].value.kind != Kind::kName) continue;
      ForeignInput input;
      input.offset = inputs_[i].place;
      input.name = inputs_[i].value.word;
      input.type = values_.TypeOf(input.name);
      if (input.type == nullptr) input.integer = values_.SizeOf(input.name);
      if (i < signature_.inputs().size()) {
        input.role = signature_.inputs()[i].role;
        input.label = signature_.inputs()[i].label;
      }
      program_.inputs.push_back(input);
    }
    program_.has_signature = signature_.inputs().size() == inputs_.size() && !inputs_.empty();
    program_.output_call.name = Word("output");
    for (size_t i = 0; i < outputs_.size(); ++i) {
      ForeignOutput output{.value = outputs_[i].value, .offset = outputs_[i].place};
      if (i < signature_.outputs().size()) {
        output.role = signature_.outputs()[i].role;
        output.target = signature_.outputs()[i].target;
      }
      program_.outputs.push_back(output);
    }
  }

  JsonWalk walk_;
  ForeignProgram program_;
  ExportValues values_;
  ExportSignature signature_;
  bool has_module_ = false;
  bool has_graph_ = false;
  bool has_specs_ = false;
  std::vector<Named> inputs_;
  std::vector<Named> outputs_;
  // By position, what arguments were called last.
  std::vector<WordId> arg_words_;
  // Of the node being read.
  std::vector<ForeignValue> results_;
  bool results_are_list_ = false;
  size_t results_place_ = 0;
};

// Why a text could not be read: it is no JSON, it is of another version, or what `reader` says.
Failure WhyUnread(const ExportReader& reader, const std::string& json, const std::string& file) {
  auto at = [&](std::optional<size_t> place, std::string_view what, std::string_view message) {
    Diagnostic diagnostic = MakeDiagnostic(Diag::kJson, "{}{}", what, message);
    diagnostic.file = file;
    if (!place) return Failure{{std::move(diagnostic)}};
    return Failure{
        {SourceText(file, json).At(std::move(diagnostic), std::min(*place, json.size()))}};
  };
  simdjson::dom::parser parser;
  simdjson::error_code error = parser.parse(json.data(), json.size()).error();
  if (error != simdjson::SUCCESS)
    return at(FindJsonMistake(json), "not JSON: ", simdjson::error_message(error));
  ExportReader version(json);
  bool other = !version.CheckVersion() && version.walk().mistake();
  const std::optional<JsonWalk::Mistake>& mistake = (other ? version : reader).walk().mistake();
  if (!mistake) return at(std::nullopt, "not JSON", "");
  return at(mistake->place, "", mistake->message);
}

Failure ArchiveFailure(const std::string& file, std::string message) {
  Failure failure = Error(Diag::kJson, "{}", message);
  failure.diagnostics[0].file = file;
  return failure;
}

}  // namespace

Result<ForeignProgram> ReadExportedProgram(const std::string& json, const std::string& file) {
  ExportReader reader(json);
  if (!reader.Read()) return WhyUnread(reader, json, file);
  return reader.TakeProgram();
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
      return ArchiveFailure(
          file, fmt::format("the archive has two models, `{}` and `{}`", model->name, entry.name));
    }
    model = &entry;
  }
  if (model == nullptr)
    return ArchiveFailure(file, "the archive has no models/*.json; torch.export.save writes one");
  return archive.Read(*model, simdjson::SIMDJSON_PADDING);
}

}  // namespace heddle
