// Pools: vectors that store the items of many owners consecutively.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace heddle {

// Whether `items` are part of `pool`, and therefore move when it grows.
template <typename T>
bool IsPartOf(std::span<const T> items, const std::vector<T>& pool) {
  return !std::less<>()(items.data(), pool.data()) &&
         std::less<>()(items.data(), pool.data() + pool.size());
}

// Appends `items`, which may be part of the pool.
template <typename T>
void AppendToPool(std::vector<T>& pool, std::span<const T> items) {
  if (items.empty()) return;
  size_t size = pool.size();
  if (!IsPartOf(items, pool)) {
    pool.insert(pool.end(), items.begin(), items.end());
    return;
  }
  auto begin = static_cast<size_t>(items.data() - pool.data());
  pool.resize(size + items.size());
  std::copy_n(pool.data() + begin, items.size(), pool.data() + size);
}

}  // namespace heddle
