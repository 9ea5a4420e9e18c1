#include "heddle/import/given_params.h"

#include <charconv>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// `*` matches any text.
bool FitsPattern(std::string_view pattern, std::string_view name) {
  std::vector<std::string_view> parts = Split(pattern, '*');
  if (parts.size() == 1) return pattern == name;
  if (!name.starts_with(parts.front())) return false;
  name.remove_prefix(parts.front().size());
  // Matching each part at its first position leaves the most text for the others.
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    size_t at = name.find(parts[i]);
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + parts[i].size());
  }
  return name.ends_with(parts.back());
}

std::optional<size_t> ParseIndex(std::string_view text) {
  size_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct IndexRange {
  size_t first;
  size_t last;
};

// `3` or `0-11`.
std::optional<IndexRange> ParseIndices(std::string_view text) {
  size_t dash = text.find('-');
  std::optional<size_t> first = ParseIndex(text.substr(0, dash));
  std::optional<size_t> last =
      dash == std::string_view::npos ? first : ParseIndex(text.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return IndexRange{*first, *last};
}

std::string InputNames(const Graph& graph) {
  constexpr size_t kMost = 8;
  std::vector<std::string_view> names;
  for (const Input& input : graph.inputs()) {
    if (names.size() < kMost) names.push_back(graph.name(input.value));
  }
  return Join(names, ", ") + (graph.inputs().size() > kMost ? ", ..." : "");
}

}  // namespace

Result<std::vector<bool>> FindGivenParams(const ForeignProgram& program, const Imported& imported,
                                          std::span<const std::string> given) {
  if (given.empty()) return std::vector<bool>();
  if (program.has_signature)
    return Error(Diag::kUsage,
                 "--params conflicts with the file's signature, which states the parameters; "
                 "remove --params");
  const Graph& graph = imported.module.graphs[0];
  std::vector<bool> params(graph.inputs().size());
  for (const std::string& list : given) {
    for (std::string_view item : Split(list, ',')) {
      item = Trim(item);
      bool found = false;
      std::optional<IndexRange> range = ParseIndices(item);
      if (range && range->last >= params.size())
        return Error(Diag::kUsage, "--params has input {}, but the graph has {}, counted from 0",
                     range->last, Counted(params.size(), "input"));
      for (size_t i = 0; i < params.size(); ++i) {
        bool fits = range ? i >= range->first && i <= range->last
                          : FitsPattern(item, graph.name(graph.inputs()[i].value));
        if (fits) params[i] = true;
        found |= fits;
      }
      if (!found)
        return Error(Diag::kUsage, "--params has `{}`, which matches no input; inputs are {}", item,
                     InputNames(graph));
    }
  }
  return params;
}

}  // namespace heddle
