// Redistributor: inserts redistributions without duplicates.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "heddle/core/ir/edit/inserter.h"

namespace heddle::compile {

class Redistributor : public Inserter {
 public:
  using Inserter::Inserter;

  // The purpose of a redistribution, and the type of its reductions.
  struct Purpose {
    Why why = Why::kTensor;
    std::string unit = {};
    bool average = false;
    double scale = 1.0;
    auto operator<=>(const Purpose&) const = default;
  };
  // `v` with placement `target`. Readers with the same purpose share one redistribution, at the
  // first request's position.
  ValueId Redistribute(Place at, ValueId v, PlacementId target, const Purpose& purpose);
  // Records an existing redistribution, or replaces it by an equal earlier one.
  void Learn(NodeId redistribution);
  // The number of inserted redistributions.
  int64_t redistributions() const { return redistributions_; }

 private:
  std::map<std::tuple<ValueId, PlacementId, Purpose>, ValueId> known_;
  int64_t redistributions_ = 0;
};

}  // namespace heddle::compile
