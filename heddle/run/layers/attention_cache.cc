#include "heddle/run/layers/attention_cache.h"

#include <ATen/ops/empty.h>

#include "heddle/core/base/check.h"
#include "heddle/run/capture/scope.h"

namespace heddle::run {

void AttentionCache::Begin(int64_t positions) {
  HEDDLE_CHECK(end_ + positions <= room_, "a cache has no room for the positions of a forward");
  begin_ = end_;
  end_ += positions;
}

std::pair<at::Tensor, at::Tensor> AttentionCache::Append(const at::Tensor& keys,
                                                         const at::Tensor& values) {
  auto [entry, first] = entries_.try_emplace(std::string(CurrentScope()));
  auto append = [&, begins = first](at::Tensor& all, const at::Tensor& more) {
    if (begins) {
      std::vector<int64_t> shape = more.sizes().vec();
      shape[2] = room_;
      all = at::empty(shape, more.options());
    }
    all.slice(2, begin_, end_).copy_(more);
    return all.slice(2, 0, end_);
  };
  at::Tensor all_keys = append(entry->second.keys, keys);
  return {all_keys, append(entry->second.values, values)};
}

}  // namespace heddle::run
