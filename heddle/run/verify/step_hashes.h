// Hashes of one step (hashes.h) from two programs, compared by rank and name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "heddle/core/base/result.h"

namespace heddle::run {

class StepHashes {
 public:
  // Adds lines of JSON as HashLines writes them. Fails for other text.
  Status Add(std::string_view lines);
  size_t size() const { return values_.size(); }

 private:
  friend struct HashDifference;
  // The loss, or hash and shape, by rank and name. The name of the loss is `loss`.
  std::map<std::pair<int64_t, std::string>, std::string> values_;
};

struct HashDifference {
  int64_t rank = 0;
  // `loss`, `validation_loss`, or a parameter's name, with `.grad` or a name of its
  // optimizer state.
  std::string name;
  // `missing` if only one of the programs has it.
  std::string first;
  std::string second;
  size_t differing = 0;
  size_t compared = 0;

  // Returns the first difference of two programs: losses, then gradients, then everything else.
  static std::optional<HashDifference> Find(const StepHashes& first, const StepHashes& second);
};

}  // namespace heddle::run
