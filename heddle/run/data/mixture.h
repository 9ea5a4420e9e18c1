// Mixtures: several sources of data in fixed proportions, such as `a.bin:0.7,b/:0.3`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/run/data/dataset.h"

namespace heddle::run {

struct WeightedSource {
  std::string path;
  // In whole numbers without a common divisor: 7 and 3 for 0.7 and 0.3.
  int64_t weight = 0;
};

// Reads `PATH:WEIGHT,PATH:WEIGHT`. Returns no source if the text names one itself: it is a path
// that exists, or has neither a colon nor a comma.
Result<std::vector<WeightedSource>> ParseSources(const std::string& text);

// Returns the text with absolute paths. `text` and `synthetic` stay as they are.
std::string AbsoluteSources(const std::string& text);

// Divides rows among sources. The division repeats after as many rows as the weights add up to.
class SourceOrder {
 public:
  // A row of the training data, or of a source.
  using Row = unsigned __int128;
  struct Place {
    size_t source = 0;
    // The number of earlier rows of this source.
    Row row = 0;
  };

  // At least two weights, with a sum of at most kMostRows.
  explicit SourceOrder(std::vector<int64_t> weights);

  static constexpr int64_t kMostRows = 1'000'000;

  Place At(Row row) const;
  // The number of rows of a source among the first `rows`. It differs from the source's share of
  // them by less than 1.
  Row Count(size_t source, Row rows) const;

 private:
  std::vector<int64_t> weights_;
  int64_t sum_ = 0;
  // For each row of a period: its source, and the number of earlier rows of that source in it.
  std::vector<uint32_t> sources_;
  std::vector<uint32_t> earlier_;
};

// Opens every source. Fails if some are text and others tokens.
Result<std::unique_ptr<Dataset>> OpenMixture(const DatasetOptions& options,
                                             const std::vector<WeightedSource>& sources);

}  // namespace heddle::run
