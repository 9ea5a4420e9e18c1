// Subsets of the choices of a problem's variables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heddle::search {

// By variable: indices of choices, sorted.
using ChoiceSets = std::vector<std::vector<uint32_t>>;

// Returns the entries of `all` at these positions.
template <typename T>
std::vector<T> Select(const std::vector<T>& all, const std::vector<uint32_t>& places) {
  std::vector<T> out;
  out.reserve(places.size());
  for (uint32_t place : places) out.push_back(all[place]);
  return out;
}

// Converts an assignment to indices within the sets. Empty if it has other choices.
inline std::vector<uint32_t> ToSubset(const ChoiceSets& sets, std::vector<uint32_t> x) {
  for (size_t v = 0; v < x.size(); ++v) {
    auto at = std::ranges::lower_bound(sets[v], x[v]);
    if (at == sets[v].end() || *at != x[v]) return {};
    x[v] = static_cast<uint32_t>(at - sets[v].begin());
  }
  return x;
}

}  // namespace heddle::search
