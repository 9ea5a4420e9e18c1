#include "heddle/core/ir/text/parse.h"

#include <algorithm>
#include <unordered_set>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/text/parse_graph.h"

namespace heddle {
namespace {

class ModuleParser {
 public:
  ModuleParser(std::string_view text, std::string_view file, const OpTable& ops)
      : scan_(text), report_(file, text), ops_(ops) {}

  void Parse() {
    if (!ParseHeader()) return;
    if (scan_.TakeWord("mesh") && !ParseMesh()) return;
    while (!scan_.AtEnd()) {
      size_t begin = scan_.offset();
      if (!scan_.TakeWord("graph")) {
        Fail(begin, 1, Diag::kSyntax, "expected `graph` or the end of the text");
        return;
      }
      scan_.set_offset(begin);
      GraphParser parser(scan_, report_, module_, ops_);
      bool readable = parser.Parse(ExpectedNodes(begin));
      Graph graph = parser.TakeGraph();
      if (!names_.insert(graph.name()).second)
        Fail(begin, 5, Diag::kDuplicateName, "graph `@{}` is already defined", graph.name());
      module_.graphs.push_back(std::move(graph));
      sources_.push_back(parser.TakeSource());
      if (!readable) return;
    }
    if (module_.graphs.empty()) Fail(scan_.offset(), 1, Diag::kSyntax, "the text has no graph");
  }

  Module TakeModule() { return std::move(module_); }
  std::vector<GraphSource> TakeSources() { return std::move(sources_); }
  Diagnostics TakeDiagnostics() { return report_.Take(); }

 private:
  // Estimates the number of nodes of the graph at `begin` from the bytes up to the first line that
  // begins with a brace. The estimates of all graphs never exceed what the whole text can contain.
  size_t ExpectedNodes(size_t begin) {
    constexpr size_t kNodeBytes = 120;
    if (end_ <= begin) end_ = std::min(scan_.text().find("\n}", begin), scan_.text().size());
    size_t free = scan_.text().size() / kNodeBytes - expected_;
    size_t nodes = std::min((end_ - begin) / kNodeBytes, free);
    expected_ += nodes;
    return nodes;
  }

  template <typename... Args>
  bool Fail(size_t offset, size_t width, Diag kind, fmt::format_string<Args...> format,
            Args&&... args) {
    report_.Report(offset, width, kind, format, std::forward<Args>(args)...);
    return false;
  }

  bool ParseHeader() {
    if (!scan_.TakeWord("heddle")) {
      return Fail(scan_.offset(), 1, Diag::kSyntax,
                  "expected `heddle 1 local` or `heddle 1 global` at the start");
    }
    size_t begin = scan_.offset();
    std::optional<int64_t> version = scan_.TakeInt();
    if (version != 1) {
      return Fail(begin, scan_.offset() - begin, Diag::kVersion,
                  "format version {} is unknown; this heddle reads version 1",
                  version ? std::to_string(*version) : "?");
    }
    if (scan_.TakeWord("global")) {
      module_.view = View::kGlobal;
    } else if (scan_.TakeWord("local")) {
      module_.view = View::kLocal;
    } else {
      return Fail(scan_.offset(), 1, Diag::kSyntax,
                  "expected `global` or `local` after the version");
    }
    return true;
  }

  bool ParseMesh() {
    Result<Mesh> mesh = heddle::ParseMesh(scan_, report_.source());
    if (!mesh.ok()) {
      report_.Add(mesh.diagnostics()[0]);
      return false;
    }
    module_.mesh = *std::move(mesh);
    return true;
  }

  Scanner scan_;
  Reporter report_;
  const OpTable& ops_;
  Module module_;
  std::vector<GraphSource> sources_;
  std::unordered_set<std::string> names_;
  // The end of the current graph, or of the last line that resembled one.
  size_t end_ = 0;
  // Nodes reserved so far, in all graphs.
  size_t expected_ = 0;
};

}  // namespace

Parsed ParseText(std::string text, std::string file, const OpTable& ops) {
  Parsed parsed;
  parsed.source.file = std::move(file);
  parsed.source.text = std::move(text);
  ModuleParser parser(parsed.source.text, parsed.source.file, ops);
  parser.Parse();
  parsed.module = parser.TakeModule();
  parsed.source.graphs = parser.TakeSources();
  parsed.diagnostics = parser.TakeDiagnostics();
  return parsed;
}

}  // namespace heddle
