// Shared moves: a tensor that one variable makes and others read. Readers that want the same
// placement share the copy there, so the price of a move is not a sum over pairs of variables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/search/solve/problem/choice_sets.h"

namespace heddle::search {

class SharedReader {
 public:
  // `wants` contains, for each choice, the placements that it reads, each once.
  SharedReader(uint32_t variable, const std::vector<std::vector<uint32_t>>& wants);

  uint32_t variable() const { return variable_; }
  size_t choices() const { return choices_; }
  // The largest number of placements that one choice wants.
  size_t most() const { return most_; }
  std::span<const uint32_t> Wants(size_t choice) const {
    std::span<const uint32_t> all(wants_.data() + choice * most_, most_);
    while (!all.empty() && all.back() == kNone) all = all.first(all.size() - 1);
    return all;
  }
  void Keep(const std::vector<uint32_t>& kept);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t variable_;
  size_t choices_;
  size_t most_ = 0;
  // `most_` entries for each choice, padded with kNone.
  std::vector<uint32_t> wants_;
};

// Prices by the place of a tensor and the placement that it is copied to.
struct MovePrices {
  size_t places() const { return all.size() / std::max(width, size_t{1}); }
  const double* Row(uint32_t place) const { return &all[place * width]; }
  double operator()(uint32_t place, uint32_t to) const { return all[place * width + to]; }

  // Number of placements.
  size_t width = 0;
  std::vector<double> all = {};
};

struct SharedMove {
  // The variable that makes the tensor.
  uint32_t from = 0;
  // By choice of `from`: the place of the tensor, which is the row of its prices.
  std::vector<uint32_t> sources;
  // In order of their variables. One of them may be `from`.
  std::vector<SharedReader> readers;
  // Moves with fewer choices share the same prices.
  std::shared_ptr<const MovePrices> prices;

  bool is_shared() const { return readers.size() > 1; }

  // Returns the price of all copies that an assignment needs.
  double Cost(const std::vector<uint32_t>& x) const;
  // Visits each copy: the first variable that reads it, and its price.
  template <typename Visit>
  void ForEachCopy(const std::vector<uint32_t>& x, Visit visit) const {
    std::vector<bool> made(prices->width);
    for (const SharedReader& reader : readers) {
      for (uint32_t to : reader.Wants(x[reader.variable()])) {
        if (!made[to]) visit(reader.variable(), (*prices)(sources[x[from]], to));
        made[to] = true;
      }
    }
  }
};

// By placement: the number of readers that may want it.
std::vector<size_t> WantedBy(const std::vector<SharedReader>& readers, size_t placements);
// By place: whether a choice leaves the tensor there.
std::vector<bool> PlacesOf(const SharedMove& move);
// Returns the price of each choice of a reader by the place of the tensor, without sharing.
std::vector<double> PricesAlone(const SharedMove& move, const SharedReader& reader);

// Returns the move with these choices of its variables.
SharedMove KeepChoices(SharedMove move, const ChoiceSets& kept);

}  // namespace heddle::search
