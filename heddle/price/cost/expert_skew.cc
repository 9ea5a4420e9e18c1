#include "heddle/price/cost/expert_skew.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "heddle/core/base/file.h"
#include "heddle/core/base/json.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::price {
namespace {

// Parses all of `text` as a number of at least zero.
std::optional<double> Number(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(number) && number >= 0 ? std::optional(number) : std::nullopt;
}

using Counts = std::vector<double>;

Result<Counts> CheckCounts(Counts counts, std::string_view path) {
  double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (!(sum > 0) || !std::isfinite(sum))
    return Error(Diag::kBadLiteral, "{}: the counts of {} add up to {}", path,
                 Counted(static_cast<int64_t>(counts.size()), "expert"), sum);
  return counts;
}

// Reads numbers separated by any characters that lists contain.
Result<Counts> ReadList(std::string text, std::string_view path) {
  for (char& c : text) {
    if (c == ',' || c == '[' || c == ']' || c == '\n' || c == '\t' || c == '\r') c = ' ';
  }
  Counts counts;
  for (std::string_view word : Split(text, ' ')) {
    if (word.empty()) continue;
    std::optional<double> count = Number(word);
    if (!count)
      return Error(Diag::kBadLiteral, "{}: `{}` is not a number of rows", path, word.substr(0, 40));
    counts.push_back(*count);
  }
  return CheckCounts(std::move(counts), path);
}

// One list per layer.
Result<std::map<std::string, Counts>> ReadLayers(const JsonDocument& document, JsonValue layers,
                                                 const std::string& path) {
  if (!layers.is_object())
    return document.Fail(layers, "counts are {}, expected a list for each layer", Describe(layers));
  std::map<std::string, Counts> all;
  for (auto [layer, list] : layers.fields()) {
    Counts counts;
    bool good = list.is_array();
    for (JsonValue count : list.items()) {
      good = good && count.is_number() && count.number() >= 0;
      if (good) counts.push_back(count.number());
    }
    if (!good)
      return document.Fail(list, "`{}` has {}, expected a list of counts", layer, Describe(list));
    HEDDLE_TRY(all[std::string(layer)], CheckCounts(std::move(counts), path));
  }
  if (all.empty()) return document.Fail(layers, "no layer has counts");
  return all;
}

constexpr std::string_view kMetric = "tokens_per_expert";

Result<ExpertSkew> ReadCounts(const std::string& path) {
  HEDDLE_TRY(std::string text, ReadFile(path));
  ExpertSkew skew{.kind = ExpertSkew::Kind::kCounts};
  if (Trim(text).starts_with('{')) {
    std::string_view object = text;
    // Only the last line of metrics counts, and the file may be long.
    if (size_t last = text.rfind(fmt::format("\"{}\"", kMetric)); last != std::string::npos) {
      size_t begin = text.rfind('\n', last) + 1;
      object = object.substr(begin, text.find('\n', last) - begin);
    }
    HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(object), path, Diag::kJson));
    JsonValue root = document.root();
    HEDDLE_TRY(skew.counts, ReadLayers(document, root.Find(kMetric).value_or(root), path));
  } else {
    HEDDLE_TRY(skew.counts[""], ReadList(std::move(text), path));
  }
  return skew;
}

// The counts of the layer that contains `scope`.
Result<Counts> CountsAt(const ExpertSkew& skew, std::string_view scope, int64_t experts) {
  Counts counts;
  if (skew.kind == ExpertSkew::Kind::kZipf) {
    for (int64_t i = 0; i < experts; ++i)
      counts.push_back(std::pow(static_cast<double>(i + 1), -skew.exponent));
    return counts;
  }
  for (const auto& [layer, own] : skew.counts) {
    bool inside = layer.empty() || scope == layer || scope.starts_with(layer + ".");
    if (inside) counts = own;
  }
  if (counts.empty())
    return Error(Diag::kBadChoice, "the expert load has no counts for `{}`", scope);
  if (static_cast<int64_t>(counts.size()) != experts)
    return Error(Diag::kBadChoice,
                 "the expert load has counts for {}, but the graph has {} in `{}`",
                 Counted(static_cast<int64_t>(counts.size()), "expert"), experts, scope);
  return counts;
}

// The expected number of rows in the buffer of a dispatch on the most loaded rank.
Result<int64_t> ExpectedRows(const Mesh& mesh, const Graph& graph, NodeId node,
                             const ExpertSkew& skew) {
  auto first_dim = [&](size_t i) {
    return graph.types().symbols().Bound(
        graph.types().dims(graph.type(graph.operands(node)[i]))[0]);
  };
  const Attrs& attrs = graph.attrs(node);
  HEDDLE_TRY(double share, LargestShare(skew, graph.scope(node), first_dim(1),
                                        mesh.Size(std::get<Axes>(*attrs.Find("over")))));
  int64_t most = std::get<int64_t>(*attrs.Find("most"));
  double rows = std::ceil(static_cast<double>(first_dim(0)) * share);
  return std::min(most, static_cast<int64_t>(std::min(rows, 1e18)));
}

// Replaces symbols by their sizes. Returns whether the type had any.
bool Substitute(Type& type, const std::map<Dim, int64_t>& sizes) {
  bool changed = false;
  for (Dim& dim : type.dims) {
    auto size = sizes.find(dim);
    if (size == sizes.end()) continue;
    dim = size->second;
    changed = true;
  }
  return changed;
}

}  // namespace

Result<ExpertSkew> ParseExpertSkew(std::string_view text) {
  if (text == "uniform") return ExpertSkew();
  if (!text.starts_with("zipf:")) return ReadCounts(std::string(text));
  std::optional<double> exponent = Number(text.substr(5));
  if (!exponent || *exponent > 100)
    return Error(Diag::kBadLiteral, "`{}`: expected a number from 0 to 100 after `zipf:`", text);
  return ExpertSkew{.kind = ExpertSkew::Kind::kZipf, .exponent = *exponent};
}

Result<double> LargestShare(const ExpertSkew& skew, std::string_view scope, int64_t experts,
                            int64_t ranks) {
  if (skew.kind == ExpertSkew::Kind::kUniform) return 1.0;
  HEDDLE_TRY(Counts counts, CountsAt(skew, scope, experts));
  auto own = static_cast<size_t>(std::max<int64_t>(experts / std::max<int64_t>(ranks, 1), 1));
  double most = 0;
  for (size_t begin = 0; begin < counts.size(); begin += own) {
    auto at = counts.begin() + static_cast<ptrdiff_t>(begin);
    most = std::max(most, std::accumulate(at, at + static_cast<ptrdiff_t>(own), 0.0));
  }
  double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  return most / sum * static_cast<double>(ranks);
}

Result<std::optional<Graph>> WithExpectedRows(const Mesh& mesh, const Graph& graph,
                                              const ExpertSkew& skew) {
  std::map<Dim, int64_t> sizes;
  for (NodeId node : graph.nodes()) {
    if (graph[node].op != op::comm_dispatch) continue;
    const AttrValue* size = graph.attrs(node).Find("size");
    if (size == nullptr) continue;
    const SymbolTable& symbols = graph.types().symbols();
    Dim dim = symbols.DimOf(*symbols.Find(std::get<std::string>(*size)));
    HEDDLE_TRY(sizes[dim], ExpectedRows(mesh, graph, node, skew));
  }
  if (sizes.empty()) return std::optional<Graph>();
  Graph expected = graph;
  Rewriter rewriter(expected);
  for (ValueId v : graph.values()) {
    Type type = graph.types()[graph.type(v)];
    bool changed = Substitute(type, sizes);
    for (Type& element : type.elements) changed |= Substitute(element, sizes);
    if (changed) rewriter.SetType(v, expected.types().Intern(type));
  }
  rewriter.Commit();
  return std::optional<Graph>(std::move(expected));
}

}  // namespace heddle::price
