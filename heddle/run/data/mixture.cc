#include "heddle/run/data/mixture.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include <fmt/ranges.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/run/checkpoint/disk.h"

namespace heddle::run {
namespace {

// --- The flag

constexpr std::string_view kForm = "PATH:WEIGHT,PATH:WEIGHT, such as a.bin:0.7,b/:0.3";

struct SourceText {
  std::string path;
  std::string weight;
};

bool IsMixture(const std::string& text) {
  return text.find_first_of(":,") != std::string::npos && !Exists(text) && !Exists(text + ".idx");
}

Result<std::vector<SourceText>> SplitSources(const std::string& text) {
  std::vector<SourceText> out;
  for (std::string_view part : Split(text, ',')) {
    size_t colon = part.rfind(':');
    if (colon == std::string_view::npos)
      return Error(Diag::kData,
                   "`{}` is neither a file nor a list of weighted sources: `{}` has no weight; "
                   "expected {}",
                   text, part, kForm);
    out.push_back({std::string(part.substr(0, colon)), std::string(part.substr(colon + 1))});
    if (colon == 0)
      return Error(Diag::kData, "`{}`: the source before `{}` has no path; expected {}", text, part,
                   kForm);
  }
  return out;
}

// A decimal number: digits / 10^places.
struct Decimal {
  int64_t digits = 0;
  size_t places = 0;
};

std::optional<Decimal> ParseDecimal(std::string_view text) {
  // More digits would overflow when weights get the same number of places.
  constexpr size_t kMostDigits = 9;
  Decimal out;
  bool point = false;
  size_t count = 0;
  for (char c : text) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9' || ++count > kMostDigits) return std::nullopt;
    out.digits = out.digits * 10 + (c - '0');
    out.places += point ? 1 : 0;
  }
  return count > 0 ? std::optional(out) : std::nullopt;
}

Result<std::vector<int64_t>> WholeWeights(const std::string& text,
                                          const std::vector<SourceText>& sources) {
  std::vector<Decimal> decimals;
  size_t places = 0;
  for (const SourceText& source : sources) {
    std::optional<Decimal> weight = ParseDecimal(source.weight);
    if (!weight || weight->digits == 0)
      return Error(Diag::kData,
                   "`{}`: the weight of `{}` is `{}`, expected a positive number of at most 9 "
                   "digits, such as 0.7",
                   text, source.path, source.weight);
    decimals.push_back(*weight);
    places = std::max(places, weight->places);
  }
  std::vector<int64_t> weights;
  int64_t divisor = 0;
  for (const Decimal& decimal : decimals) {
    int64_t whole = decimal.digits;
    for (size_t i = decimal.places; i < places; ++i) whole *= 10;
    weights.push_back(whole);
    divisor = std::gcd(divisor, whole);
  }
  double sum = 0;
  for (int64_t& weight : weights) sum += static_cast<double>(weight /= divisor);
  if (sum > static_cast<double>(SourceOrder::kMostRows))
    return Error(Diag::kData,
                 "`{}`: in whole numbers the weights are {}, expected a sum of at most {}; round "
                 "them to fewer digits",
                 text, fmt::join(weights, " : "), WithCommas(SourceOrder::kMostRows));
  return weights;
}

// --- The dataset

class MixtureDataset final : public Dataset {
 public:
  MixtureDataset(const DatasetOptions& options, std::vector<WeightedSource> sources,
                 std::vector<std::unique_ptr<Dataset>> datasets, SourceOrder order)
      : options_(options),
        sources_(std::move(sources)),
        datasets_(std::move(datasets)),
        order_(std::move(order)) {}

  Status Read(DataSplit split, int64_t step, int64_t first_row, int64_t rows,
              std::span<int64_t> tokens, std::span<int64_t> labels) const override;
  Result<std::optional<int64_t>> CheckTokens(const TokenCheck& check) const override;
  std::string Describe(int64_t steps) const override;
  std::string Fingerprint() const override;
  bool Has(DataSplit split) const override {
    return std::ranges::all_of(datasets_, [&](const auto& data) { return data->Has(split); });
  }
  bool IsText() const override { return datasets_[0]->IsText(); }

 private:
  // The number of rows before a step.
  SourceOrder::Row RowsBefore(int64_t step) const {
    return static_cast<SourceOrder::Row>(step - 1) *
           static_cast<SourceOrder::Row>(options_.global_batch);
  }
  // The number of rows of a source before a step.
  int64_t Before(size_t source, int64_t step) const {
    return static_cast<int64_t>(order_.Count(source, RowsBefore(step)));
  }

  DatasetOptions options_;
  std::vector<WeightedSource> sources_;
  // A step of each has one row.
  std::vector<std::unique_ptr<Dataset>> datasets_;
  SourceOrder order_;
};

Status MixtureDataset::Read(DataSplit split, int64_t step, int64_t first_row, int64_t rows,
                            std::span<int64_t> tokens, std::span<int64_t> labels) const {
  HEDDLE_CHECK(step >= 1 && first_row >= 0, "steps count from 1, and rows from 0");
  auto length = static_cast<size_t>(options_.seq_len);
  HEDDLE_CHECK(tokens.size() == static_cast<size_t>(rows) * length, "wrong size of `tokens`");
  HEDDLE_CHECK(labels.size() == tokens.size(), "wrong size of `labels`");
  for (int64_t r = 0; r < rows; ++r) {
    SourceOrder::Place place =
        order_.At(RowsBefore(step) + static_cast<SourceOrder::Row>(first_row + r));
    size_t at = static_cast<size_t>(r) * length;
    HEDDLE_RETURN_IF_ERROR(datasets_[place.source]->Read(split, static_cast<int64_t>(place.row) + 1,
                                                         0, 1, tokens.subspan(at, length),
                                                         labels.subspan(at, length)));
  }
  return Done{};
}

Result<std::optional<int64_t>> MixtureDataset::CheckTokens(const TokenCheck& check) const {
  std::optional<int64_t> largest = 0;
  for (size_t i = 0; i < datasets_.size(); ++i) {
    TokenCheck own = check;
    own.first_step = Before(i, check.first_step) + 1;
    own.last_step = Before(i, check.last_step + 1);
    HEDDLE_TRY(std::optional<int64_t> found, datasets_[i]->CheckTokens(own));
    largest = largest && found ? std::optional(std::max(*largest, *found)) : std::nullopt;
  }
  return largest;
}

std::string MixtureDataset::Describe(int64_t steps) const {
  std::vector<int64_t> weights;
  for (const WeightedSource& source : sources_) weights.push_back(source.weight);
  auto sum = static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
  std::string out = fmt::format("{} in proportions {}", Counted(sources_.size(), "source"),
                                fmt::join(weights, " : "));
  for (size_t i = 0; i < sources_.size(); ++i)
    out +=
        fmt::format("\n{:.4g} of {}: {}", static_cast<double>(weights[i]) / sum, sources_[i].path,
                    datasets_[i]->Describe(steps > 0 ? Before(i, steps + 1) : 0));
  return out;
}

// Fields that all sources have, such as the length of sequences, appear once.
std::string MixtureDataset::Fingerprint() const {
  std::vector<int64_t> weights;
  std::vector<std::string> lines;
  std::map<std::string_view, size_t> times;
  for (const auto& data : datasets_) lines.push_back(data->Fingerprint());
  for (const std::string& line : lines) {
    for (std::string_view field : Split(line, ' ')) ++times[field];
  }
  for (const WeightedSource& source : sources_) weights.push_back(source.weight);
  std::string out =
      fmt::format("weights={} global_batch={}", fmt::join(weights, ":"), options_.global_batch);
  for (size_t i = 0; i < lines.size(); ++i) {
    for (std::string_view field : Split(lines[i], ' ')) {
      if (field.starts_with("global_batch=")) continue;
      bool common = times[field] == lines.size();
      if (common && i > 0) continue;
      out += common ? fmt::format(" {}", field) : fmt::format(" source{}.{}", i + 1, field);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<WeightedSource>> ParseSources(const std::string& text) {
  std::vector<WeightedSource> out;
  if (!IsMixture(text)) return out;
  HEDDLE_TRY(std::vector<SourceText> texts, SplitSources(text));
  HEDDLE_TRY(std::vector<int64_t> weights, WholeWeights(text, texts));
  for (size_t i = 0; i < texts.size(); ++i) {
    auto same = [&](const WeightedSource& other) { return other.path == texts[i].path; };
    if (std::ranges::any_of(out, same))
      return Error(Diag::kData, "`{}` names `{}` twice; name it once, with the sum of its weights",
                   text, texts[i].path);
    out.push_back({texts[i].path, weights[i]});
  }
  return out;
}

std::string AbsoluteSources(const std::string& text) {
  auto absolute = [](const std::string& path) {
    return path == "text" || path == "synthetic" ? path : AbsolutePath(path);
  };
  Result<std::vector<SourceText>> sources = std::vector<SourceText>();
  if (IsMixture(text)) sources = SplitSources(text);
  if (!sources.ok() || sources->empty()) return absolute(text);
  std::string out;
  for (const SourceText& source : *sources)
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", absolute(source.path), source.weight);
  return out;
}

SourceOrder::SourceOrder(std::vector<int64_t> weights) : weights_(std::move(weights)) {
  sum_ = std::accumulate(weights_.begin(), weights_.end(), int64_t{0});
  HEDDLE_CHECK(weights_.size() >= 2 && sum_ <= kMostRows, "wrong weights");
  // R. Tijdeman, The chairman assignment problem (1980): of the sources that may have the next row,
  // takes the one that must have a row first. The number of rows of each source then differs from
  // its share by at most 1 - 1/(2k - 2), for k sources.
  int64_t scale = 2 * static_cast<int64_t>(weights_.size()) - 2;
  std::vector<int64_t> taken(weights_.size());
  for (int64_t rows = 1; rows <= sum_; ++rows) {
    std::optional<size_t> best;
    int64_t best_time = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      // The rows that the source lacks, times `scale` and the sum.
      int64_t lacks = scale * (weights_[i] * rows - sum_ * taken[i]);
      if (lacks < sum_) continue;
      // The time until it must have a row is this divided by the weight.
      int64_t time = (scale - 1) * sum_ - lacks;
      if (best && time * weights_[*best] >= best_time * weights_[i]) continue;
      best = i;
      best_time = time;
    }
    HEDDLE_CHECK(best.has_value(), "no source may have the next row");
    sources_.push_back(static_cast<uint32_t>(*best));
    earlier_.push_back(static_cast<uint32_t>(taken[*best]++));
  }
  HEDDLE_CHECK(taken == weights_, "a period has other numbers of rows than its weights");
}

SourceOrder::Place SourceOrder::At(Row row) const {
  auto sum = static_cast<Row>(sum_);
  auto rest = static_cast<size_t>(row % sum);
  size_t source = sources_[rest];
  return {source, row / sum * static_cast<Row>(weights_[source]) + earlier_[rest]};
}

SourceOrder::Row SourceOrder::Count(size_t source, Row rows) const {
  auto sum = static_cast<Row>(sum_);
  auto rest = static_cast<std::ptrdiff_t>(rows % sum);
  auto in_period = std::count(sources_.begin(), sources_.begin() + rest, source);
  return rows / sum * static_cast<Row>(weights_[source]) + static_cast<Row>(in_period);
}

Result<std::unique_ptr<Dataset>> OpenMixture(const DatasetOptions& options,
                                             const std::vector<WeightedSource>& sources) {
  std::vector<std::unique_ptr<Dataset>> datasets;
  std::vector<int64_t> weights;
  for (const WeightedSource& source : sources) {
    if (source.path == "synthetic")
      return Error(Diag::kData, "`{}`: synthetic tokens have no source to mix; name files",
                   options.source);
    DatasetOptions own = options;
    own.source = source.path;
    own.global_batch = 1;
    HEDDLE_TRY(std::unique_ptr<Dataset> opened, Dataset::Open(own));
    if (!datasets.empty() && opened->IsText() != datasets[0]->IsText())
      return Error(Diag::kData,
                   "`{}` has {}, but `{}` has {}; all sources of a mixture must be of one kind: "
                   "`heddle tokenize` turns text into tokens",
                   source.path, opened->IsText() ? "text" : "tokens", sources[0].path,
                   datasets[0]->IsText() ? "text" : "tokens");
    datasets.push_back(std::move(opened));
    weights.push_back(source.weight);
  }
  return std::unique_ptr<Dataset>(std::make_unique<MixtureDataset>(
      options, sources, std::move(datasets), SourceOrder(std::move(weights))));
}

}  // namespace heddle::run
