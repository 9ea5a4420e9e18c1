#include <algorithm>
#include <charconv>
#include <set>

#include "heddle/core/base/text.h"
#include "heddle/price/calibrate/measurements.h"
#include "heddle/price/cost/cluster/rate.h"

namespace heddle::price {
namespace {

constexpr double kTableMicro = 1000;
// size, count, type, redop, root, and for both places: time, algbw, busbw, #wrong.
constexpr size_t kColumns = 13;

struct NamedKind {
  std::string_view name;
  CollectiveKind kind;
};
constexpr NamedKind kKinds[] = {{"all_gather_perf", CollectiveKind::kAllGather},
                                {"reduce_scatter_perf", CollectiveKind::kReduceScatter},
                                {"all_reduce_perf", CollectiveKind::kAllReduce},
                                {"alltoall_perf", CollectiveKind::kAllToAll}};

std::vector<std::string_view> WordsOf(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::string_view word : Split(line, ' ')) {
    word = Trim(word);
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::optional<double> NumberIn(std::string_view word) {
  double number = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  bool good = error == std::errc() && end == word.data() + word.size();
  return good ? std::optional(number) : std::nullopt;
}

class TableReader {
 public:
  TableReader(std::string_view text, const std::string& file) : source_(file, text) {}

  Result<NcclTable> Read() {
    for (std::string_view line : Split(source_.text(), '\n')) {
      std::vector<std::string_view> words = WordsOf(line);
      if (words.empty()) continue;
      if (words[0].starts_with('#')) {
        HEDDLE_RETURN_IF_ERROR(ReadComment(line, words));
      } else if (std::isdigit(static_cast<unsigned char>(words[0][0])) != 0) {
        HEDDLE_RETURN_IF_ERROR(ReadRow(words));
      }
    }
    std::string_view all = source_.text();
    if (!kind_)
      return Wrong("no line `# Collective test starting: NAME_perf` names the collective", all);
    if (ranks_ < 2) return Wrong("fewer than two lines `#  Rank ...`", all);
    if (out_.rows.size() < 2) return Wrong("fewer than two sizes", all);
    auto nodes = static_cast<int64_t>(hosts_.size());
    out_.kind = *kind_;
    out_.group = {.ranks = ranks_,
                  .nodes = nodes,
                  .most_per_node = (ranks_ + nodes - 1) / nodes,
                  .fewest_per_node = ranks_ / nodes};
    return out_;
  }

 private:
  // `word` is a part of the text; the error points to it.
  Failure Wrong(std::string_view message, std::string_view word) const {
    auto at = static_cast<size_t>(word.data() - source_.text().data());
    size_t width = std::min(word.size(), word.find('\n'));
    Diagnostic diagnostic = MakeDiagnostic(Diag::kCostsFile, "{}", message);
    return {{source_.At(std::move(diagnostic), at, std::max<size_t>(1, width))}};
  }

  Status ReadComment(std::string_view line, const std::vector<std::string_view>& words) {
    for (const NamedKind& named : kKinds) {
      if (words.back() == named.name) kind_ = named.kind;
    }
    // `#  Rank  0 Group  0 Pid  77 on  host7 device  0 [0x1b] NVIDIA H100`
    if (words.size() > 1 && words[1] == "Rank") {
      auto on = std::ranges::find(words, "on");
      if (on == words.end() || on + 1 == words.end()) return Wrong("a rank without its host", line);
      hosts_.insert(*(on + 1));
      ++ranks_;
    }
    // `#  (B)  (elements)  (us)  (GB/s) ...`
    bool units = words.size() > 1 && words[1].starts_with('(');
    if (!units) return Done{};
    for (std::string_view word : words) {
      bool known = word == "#" || word == "(B)" || word == "(elements)" || word == "(us)" ||
                   word == "(GB/s)";
      if (!known) return Wrong(fmt::format("unknown unit `{}`", word), word);
    }
    has_units_ = true;
    return Done{};
  }

  Status ReadRow(const std::vector<std::string_view>& words) {
    if (!has_units_)
      return Wrong("no line `# (B) (elements) ... (us) (GB/s)` states units", words[0]);
    if (words.size() != kColumns)
      return Wrong(fmt::format("a row of {} columns, expected {}", words.size(), kColumns),
                   words[0]);
    std::optional<double> bytes = NumberIn(words[0]);
    if (!bytes || !(*bytes >= 0 && *bytes < 0x1p60))
      return Wrong("not a number of bytes", words[0]);
    std::optional<double> micros = NumberIn(words[5]);
    if (!micros || !(*micros > 0 && *micros < 1e12))
      return Wrong("not a time in microseconds", words[5]);
    Bytes size{static_cast<int64_t>(*bytes)};
    if (size.value == 0) return Done{};
    if (!out_.rows.empty() && out_.rows.back().bytes >= size)
      return Wrong("sizes do not increase", words[0]);
    out_.rows.push_back({size, WholeNanos(*micros * kTableMicro)});
    return Done{};
  }

  SourceText source_;
  std::optional<CollectiveKind> kind_;
  std::set<std::string_view> hosts_;
  int64_t ranks_ = 0;
  bool has_units_ = false;
  NcclTable out_;
};

}  // namespace

bool IsNcclTable(std::string_view text) { return Trim(text).starts_with('#'); }

Result<NcclTable> ReadNcclTable(std::string_view text, const std::string& file) {
  return TableReader(text, file).Read();
}

}  // namespace heddle::price
