#include "heddle/price/cost/measured.h"

#include <algorithm>
#include <charconv>

#include "heddle/core/base/file.h"
#include "heddle/core/base/gzip.h"
#include "heddle/core/base/json_fields.h"
#include "heddle/core/base/text.h"
#include "heddle/price/cost/cluster/rate.h"
#include "heddle/price/cost/schedule_costs.h"

namespace heddle::price {
namespace {

constexpr size_t kMostUnpacked = size_t{1} << 28;

std::string WithoutSpaces(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c != ' ') out += c;
  }
  return out;
}

// --- JSON

MeasuredOp ReadOp(JsonFields& fields) {
  MeasuredOp entry;
  entry.op = fields.Text("op");
  entry.operands = fields.Texts("operands");
  for (std::string& operand : entry.operands) operand = WithoutSpaces(operand);
  if (fields.Has("attrs")) {
    JsonFields attrs = fields.Object("attrs");
    for (const auto& [name, value] : attrs.fields())
      entry.attrs.emplace_back(name, WithoutSpaces(attrs.Text(name)));
  }
  entry.time = WholeNanos(fields.NotNegative("ms") * kNanosPerMilli);
  fields.Finish();
  return entry;
}

Curve ReadCurve(JsonFields& fields) {
  constexpr std::string_view kKinds[] = {"all_gather", "reduce_scatter", "all_reduce",
                                         "all_to_all"};
  constexpr std::string_view kInterpolations[] = {"log", "columns"};
  Curve curve;
  curve.kind = static_cast<CollectiveKind>(fields.Choice("kind", kKinds));
  curve.over = fields.Text("over", "");
  curve.ranks = fields.Count("ranks", 1, kMostRanks);
  curve.nodes = fields.Count("nodes", 1, kMostRanks, 0);
  curve.interpolation =
      static_cast<Interpolation>(fields.Choice("interpolation", kInterpolations, 0));
  for (const std::vector<double>& row : fields.Rows("points", 2)) {
    // The logarithm needs a positive size.
    Bytes bytes{std::max<int64_t>(1, static_cast<int64_t>(row[0]))};
    curve.points.push_back({bytes, std::max(Nanos{1}, WholeNanos(row[1] * kNanosPerMilli))});
  }
  if (curve.points.size() < 2 && !fields.has_mistakes())
    fields.Wrong("points", "has {} points, expected at least 2", curve.points.size());
  for (size_t i = 1; i < curve.points.size(); ++i) {
    if (curve.points[i - 1].bytes < curve.points[i].bytes) continue;
    fields.Wrong("points", "has {} bytes after {}, expected increasing sizes",
                 curve.points[i].bytes.value, curve.points[i - 1].bytes.value);
    break;
  }
  fields.Finish();
  return curve;
}

Result<MeasuredCosts> ParseJsonCosts(std::string_view text, const std::string& file) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(text), file, Diag::kJson));
  if (IsScheduleCosts(document)) return ReadScheduleCosts(document, file);
  JsonMistakes mistakes(document, Diag::kCostsFile);
  JsonFields fields(document.root(), mistakes);
  MeasuredCosts costs;
  costs.file = file;
  constexpr std::string_view kHeader[] = {"costs 1"};
  fields.Choice("heddle", kHeader);
  fields.Text("about", "");
  for (JsonFields& one : fields.Objects("ops", false)) costs.ops.push_back(ReadOp(one));
  if (fields.Has("nodes")) {
    JsonFields nodes = fields.Object("nodes");
    for (const auto& [name, value] : nodes.fields()) {
      Nanos time = WholeNanos(nodes.NotNegative(name) * kNanosPerMilli);
      costs.nodes[std::string(name.substr(name.starts_with('%') ? 1 : 0))] = time;
    }
  }
  for (JsonFields& one : fields.Objects("collectives", false))
    costs.curves.push_back(ReadCurve(one));
  fields.Finish();
  if (!mistakes.empty()) return mistakes.failure();
  return costs;
}

// --- Tables

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    size_t begin = line.find_first_not_of(" \t\r,", at);
    if (begin == std::string_view::npos) break;
    size_t end = std::min(line.find_first_of(" \t\r,", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    at = end;
  }
  return words;
}

template <typename T>
std::optional<T> NumberIn(std::string_view word) {
  T number{};
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

class TableReader {
 public:
  TableReader(std::string_view text, const std::string& file) : source_(file, text) {
    costs_.file = file;
  }

  Result<MeasuredCosts> Read() {
    for (std::string_view line : Split(source_.text(), '\n')) {
      std::vector<std::string_view> words = Words(line);
      bool rule = line.find_first_not_of("- \t\r") == std::string_view::npos;
      if (words.empty() || rule) continue;
      if (sizes_.empty()) {
        HEDDLE_RETURN_IF_ERROR(ReadHeader(words));
      } else {
        HEDDLE_RETURN_IF_ERROR(ReadRow(words));
      }
    }
    if (sizes_.empty()) return Wrong("an empty table", source_.text());
    return std::move(costs_);
  }

 private:
  // `word` must be a part of the text; the error points to it.
  Failure Wrong(std::string message, std::string_view word) {
    auto at = static_cast<size_t>(word.data() - source_.text().data());
    Diagnostic diagnostic = MakeDiagnostic(Diag::kCostsFile, "{}", message);
    return {{source_.At(std::move(diagnostic), at, std::max<size_t>(1, word.size()))}};
  }

  // `Group  Group Size  Collective  1MB (ms)  2MB (ms) ...`
  Status ReadHeader(const std::vector<std::string_view>& words) {
    for (std::string_view word : words) {
      if (!word.ends_with("MB")) continue;
      std::optional<int64_t> size = NumberIn<int64_t>(word.substr(0, word.size() - 2));
      bool rises = size && *size > 0 && *size < (int64_t{1} << 40) &&
                   (sizes_.empty() || sizes_.back() < MiB(*size));
      if (!rises) return Wrong(fmt::format("column `{}` is not a larger size", word), word);
      sizes_.push_back(MiB(*size));
    }
    if (words[0] != "Group" || sizes_.size() < 2)
      return Wrong("not a header `Group, Group Size, Collective, 1MB (ms), 2MB (ms), ...`",
                   words[0]);
    return Done{};
  }

  Status ReadRow(const std::vector<std::string_view>& words) {
    if (words.size() != sizes_.size() + 3) {
      return Wrong(fmt::format("a row of {} times, expected {}, one for each size",
                               words.size() < 3 ? 0 : words.size() - 3, sizes_.size()),
                   words[0]);
    }
    // The same collective, into existing memory.
    if (words[2].ends_with("_out")) return Done{};
    Curve curve;
    curve.over = words[0];
    curve.interpolation = Interpolation::kColumns;
    std::optional<int64_t> ranks = NumberIn<int64_t>(words[1]);
    if (!ranks || *ranks < 1 || *ranks > kMostRanks)
      return Wrong(fmt::format("group size `{}` is not a number of at least 1", words[1]),
                   words[1]);
    curve.ranks = *ranks;
    std::optional<CollectiveKind> kind;
    for (CollectiveKind candidate :
         {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce,
          CollectiveKind::kAllToAll, CollectiveKind::kShift}) {
      if (words[2].starts_with(Name(candidate))) kind = candidate;
    }
    if (!kind) return Wrong(fmt::format("`{}` is not a collective", words[2]), words[2]);
    curve.kind = *kind;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      std::string_view word = words[i + 3];
      std::optional<double> ms = NumberIn<double>(word);
      if (!ms || !(*ms >= 0 && *ms < 1e12))
        return Wrong(fmt::format("`{}` is not a time in milliseconds", word), word);
      curve.points.push_back({sizes_[i], std::max(Nanos{1}, WholeNanos(*ms * kNanosPerMilli))});
    }
    costs_.curves.push_back(std::move(curve));
    return Done{};
  }

  SourceText source_;
  std::vector<Bytes> sizes_;
  MeasuredCosts costs_;
};

}  // namespace

Result<const Curve*> MeasuredCosts::FindCurve(CollectiveKind kind, const Mesh& mesh,
                                              const Axes& over, const GroupShape& group) const {
  std::string name = Format(mesh, over);
  // An import names the axis of process group `0` `g0`.
  auto axis_of = [&](std::string_view part) {
    std::optional<AxisId> axis = mesh.Find(part);
    return axis ? axis : mesh.Find(fmt::format("g{}", part));
  };
  auto names_axes = [&](const std::string& text) {
    return std::ranges::all_of(Split(text, ','),
                               [&](std::string_view part) { return axis_of(part).has_value(); });
  };
  const Curve* by_ranks = nullptr;
  const Curve* another = nullptr;
  for (const Curve& curve : curves) {
    if (curve.kind != kind || curve.ranks != group.ranks) continue;
    if (curve.nodes != 0 && curve.nodes != group.nodes) continue;
    if (curve.over == name || "g" + curve.over == name) return &curve;
    if (names_axes(curve.over)) continue;
    if (by_ranks == nullptr) {
      by_ranks = &curve;
    } else if (another == nullptr) {
      another = &curve;
    }
  }
  if (another == nullptr) return by_ranks;
  Failure failure = Error(
      Diag::kCostsFile,
      "{} over [{}] matches groups `{}` and `{}`, both of {} ranks; name the group after the axes",
      Name(kind), name, by_ranks->over, another->over, group.ranks);
  failure.diagnostics[0].file = file;
  return failure;
}

Result<MeasuredCosts> ParseCosts(std::string_view text, const std::string& file) {
  if (Trim(text).starts_with('{')) return ParseJsonCosts(text, file);
  return TableReader(text, file).Read();
}

Result<MeasuredCosts> LoadCosts(const std::string& path) {
  HEDDLE_TRY(std::string text, ReadFile(path));
  if (IsGzip(text)) {
    HEDDLE_TRY(text, Gunzip(text, kMostUnpacked));
  }
  return ParseCosts(text, path);
}

}  // namespace heddle::price
