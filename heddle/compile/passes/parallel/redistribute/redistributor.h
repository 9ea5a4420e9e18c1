// Redistributor: inserts redistributions, each once.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "heddle/core/ir/edit/inserter.h"

namespace heddle::compile {

class Redistributor : public Inserter {
 public:
  using Inserter::Inserter;

  // What a redistribution is for, and what its reductions do.
  struct Purpose {
    Why why = Why::kTensor;
    std::string unit = {};
    bool average = false;
    double scale = 1.0;
    auto operator<=>(const Purpose&) const = default;
  };
  // `v` in the placement `target`. What several readers need for one purpose is made once, where it was asked for first.
  ValueId Redistribute(Place at, ValueId v, PlacementId target, const Purpose& purpose);
  // Takes note of a redistribution that is there already, or replaces it by an equal one from before.
  void Learn(NodeId redistribution);
  // How many redistributions were made.
  int64_t redistributions() const { return redistributions_; }

 private:
  std::map<std::tuple<ValueId, PlacementId, Purpose>, ValueId> known_;
  int64_t redistributions_ = 0;
};

}  // namespace heddle::compile
