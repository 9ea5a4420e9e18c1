#include "heddle/base/family_index.h"

#include <bit>

namespace heddle {

void FamilyIndex::PrefetchNext(std::string_view stem) const {
  char next[ShortText::kLongest + 1];
  if (stem.empty() || stem.size() >= sizeof(next)) return;
  stem.copy(next, stem.size());
  size_t digit = stem.size() - 1;
  while (digit > 0 && next[digit] == '9') next[digit--] = '0';
  if (next[digit] < '0' || next[digit] >= '9') return;
  ++next[digit];
  // Any digit behind it leads to the family.
  next[stem.size()] = '0';
  Prefetch(Key(std::string_view(next, stem.size() + 1)));
}

void FamilyIndex::Grow(size_t least) {
  std::vector<Family> old = std::move(families_);
  families_.assign(std::bit_ceil(least < 8 ? size_t{8} : least), Family{});
  mask_ = families_.size() - 1;
  for (const Family& family : old) {
    if (family.stem_begin == kNone) continue;
    size_t i = family.hash & mask_;
    while (families_[i].stem_begin != kNone) i = (i + 1) & mask_;
    families_[i] = family;
  }
}

}  // namespace heddle
