#include "test/attack/corpus.h"

#include <algorithm>
#include <set>

#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/text/op_example.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "test/golden/golden_file.h"

namespace heddle {
namespace {

constexpr const char* kHostileNumbers[] = {"0",
                                           "1",
                                           "-1",
                                           "2",
                                           "3",
                                           "7",
                                           "64",
                                           "65",
                                           "255",
                                           "256",
                                           "2147483647",
                                           "2147483648",
                                           "4611686018427387904",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "18446744073709551616",
                                           "1e300",
                                           "1e-320",
                                           "-0.0",
                                           "0.5"};
constexpr const char* kHostileWords[] = {"none",   "nan",    "inf",   "max",          "grad",
                                         "expert", "global", "local", "async",        "host",
                                         "stream", "t0<=8",  "t1<=0", "aten.a.b.c.d", "unit",
                                         "keep",   "of",     "graph", "true"};
constexpr const char* kHostileStrings[] = {"\"\"",    "\"*\"",    "\"**\"",    "\"**.*.**\"",
                                           "\"a.b\"", "\"\\\"\"", "\"\\xff\"", "\"m\""};

bool IsGraph(std::string_view text) { return text.starts_with("heddle 1"); }
bool IsPlan(std::string_view text) { return text.starts_with("heddle plan"); }
bool IsProblem(std::string_view text) {
  return text.starts_with('{') && text.find("\"vars\"") != std::string_view::npos;
}

// Makes a step that can be planned from an example: inputs and outputs have roles, and the node is
// in a module.
std::string AsStep(Module module) {
  module.view = View::kGlobal;
  module.mesh = Mesh();
  for (Input& input : module.graphs[0].mutable_inputs()) {
    input.role = InputRole::kBatch;
    input.label = module.graphs[0].name(input.value);
  }
  for (Output& output : module.graphs[0].mutable_outputs()) output.role = OutputRole::kMetric;
  std::string text = Print(module);
  return text.insert(text.rfind("\n}"), " @m");
}

class Reader {
 public:
  void AddText(std::string_view text) {
    if (IsGraph(text)) corpus_.seeds.push_back({std::string(text), ""});
    if (IsPlan(text)) corpus_.plans.emplace_back(text);
    if (IsProblem(text)) corpus_.problems.emplace_back(text);
  }

  void AddGolden(const GoldenFile& file) {
    for (const std::string& run : RunLines(file.preamble)) AddPipeline(run);
    for (const GoldenCase& one : file.cases) {
      for (const std::string& run : RunLines(one.preamble)) AddPipeline(run);
      AddText(one.input);
      bool has_graph = IsGraph(one.input);
      for (const GoldenSection& section : one.sections) {
        AddText(section.text);
        if (has_graph && IsPlan(section.text)) corpus_.seeds.push_back({one.input, section.text});
      }
    }
  }

  void AddExamples() {
    for (OpId id : Ops().ids()) {
      if (id == kOpaqueOp) continue;
      Module module = MakeExample(Ops(), id)->module;
      AddText(Print(module));
      // Ops that name axes need a mesh, which a plan adds.
      bool has_axes = Ops()[id].schema.Find("over") != nullptr;
      if (Ops()[id].family != "comm" && !has_axes) AddText(AsStep(std::move(module)));
    }
  }

  void AddPipelines() {
    for (const compile::PassDef* pass : compile::Passes().passes)
      corpus_.passes.emplace_back(pass->name);
    for (const compile::PassTable::Named& named : compile::Passes().pipelines)
      corpus_.passes.emplace_back(named.name);
    pipelines_.insert("insert-redistributions, lower, localize, clean");
  }

  Corpus Finish() {
    std::map<Token::Kind, std::set<std::string>> words;
    std::set<std::string> lines;
    auto add = [&](const std::string& text) {
      for (const Token& token : Tokenize(text)) {
        if (token.text.size() < 200) words[token.kind].insert(token.text);
      }
    };
    for (const Seed& seed : corpus_.seeds) {
      add(seed.graph);
      for (std::string_view line : Split(seed.graph, '\n')) lines.insert(std::string(line));
    }
    for (const std::string& plan : corpus_.plans) add(plan);
    words[Token::Kind::kNumber].insert(std::begin(kHostileNumbers), std::end(kHostileNumbers));
    words[Token::Kind::kWord].insert(std::begin(kHostileWords), std::end(kHostileWords));
    words[Token::Kind::kString].insert(std::begin(kHostileStrings), std::end(kHostileStrings));
    for (auto& [kind, set] : words) corpus_.words[kind] = {set.begin(), set.end()};
    corpus_.lines = {lines.begin(), lines.end()};
    corpus_.pipelines = {pipelines_.begin(), pipelines_.end()};
    return std::move(corpus_);
  }

 private:
  void AddPipeline(const std::string& run) {
    constexpr std::string_view kFlag = "--pipeline=";
    size_t at = run.find(kFlag);
    if (at == std::string::npos) return;
    std::string text = run.substr(at + kFlag.size());
    char quote = text.empty() ? ' ' : text[0];
    bool quoted = quote == '\'' || quote == '"';
    text = quoted ? text.substr(1, text.find(quote, 1) - 1) : text.substr(0, text.find(' '));
    pipelines_.insert(std::move(text));
  }

  Corpus corpus_;
  std::set<std::string> pipelines_;
};

}  // namespace

Result<Corpus> ReadCorpus(const std::vector<std::string>& paths) {
  Reader reader;
  reader.AddPipelines();
  for (const std::string& path : paths) {
    HEDDLE_TRY(std::string text, ReadFile(path));
    if (path.ends_with(".hdt")) {
      reader.AddGolden(ParseGolden(text));
    } else {
      reader.AddText(text);
    }
  }
  reader.AddExamples();
  return reader.Finish();
}

}  // namespace heddle
