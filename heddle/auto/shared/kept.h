// Choices that are left of a problem.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/solve/problem/problem.h"

namespace heddle {

// By variable, sorted: the choices that are left.
using KeptOf = std::vector<std::vector<uint32_t>>;

// Those that restrictions allow.
KeptOf Allowed(const PairwiseProblem& problem);
// By variable and choice, what an assignment with it costs at least: choices with which one may cost `cutoff` or less; nothing if none
// does.
KeptOf Within(const std::vector<std::vector<double>>& at_least, double cutoff);
// An assignment as the choices that are left are numbered; nothing if it has others.
std::vector<uint32_t> Among(const KeptOf& kept, std::vector<uint32_t> x);

template <typename T>
std::vector<T> Only(const std::vector<T>& all, const std::vector<uint32_t>& kept) {
  std::vector<T> out;
  out.reserve(kept.size());
  for (uint32_t k : kept) out.push_back(all[k]);
  return out;
}

}  // namespace heddle
