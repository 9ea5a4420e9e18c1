// RangePeaks: an array of sizes with range additions and range maxima.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "heddle/core/base/units.h"

namespace heddle::compile {

class RangePeaks {
 public:
  explicit RangePeaks(const std::vector<Bytes>& values) : size_(values.size()) {
    while (leaves_ < size_) leaves_ *= 2;
    peak_.resize(leaves_ * 2);
    added_.resize(leaves_ * 2);
    for (size_t i = 0; i < size_; ++i) peak_[leaves_ + i] = values[i];
    for (size_t i = leaves_; i-- > 1;) peak_[i] = std::max(peak_[2 * i], peak_[2 * i + 1]);
  }

  // Adds to positions [first, last).
  void Add(size_t first, size_t last, Bytes bytes) { Add(1, 0, leaves_, first, last, bytes); }
  // The maximum of [first, last); 0 for an empty range.
  Bytes Most(size_t first, size_t last) const {
    return first < last ? Most(1, 0, leaves_, first, last) : Bytes{};
  }

 private:
  void Add(size_t at, size_t low, size_t high, size_t first, size_t last, Bytes bytes) {
    if (last <= low || high <= first) return;
    if (first <= low && high <= last) {
      peak_[at] += bytes;
      added_[at] += bytes;
      return;
    }
    size_t middle = (low + high) / 2;
    Add(2 * at, low, middle, first, last, bytes);
    Add(2 * at + 1, middle, high, first, last, bytes);
    peak_[at] = std::max(peak_[2 * at], peak_[2 * at + 1]) + added_[at];
  }
  Bytes Most(size_t at, size_t low, size_t high, size_t first, size_t last) const {
    if (last <= low || high <= first) return {};
    if (first <= low && high <= last) return peak_[at];
    size_t middle = (low + high) / 2;
    return std::max(Most(2 * at, low, middle, first, last),
                    Most(2 * at + 1, middle, high, first, last)) +
           added_[at];
  }

  size_t size_;
  size_t leaves_ = 1;
  std::vector<Bytes> peak_;
  // Added to all leaves of a subtree.
  std::vector<Bytes> added_;
};

}  // namespace heddle::compile
