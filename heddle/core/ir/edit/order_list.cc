#include "heddle/core/ir/edit/order_list.h"

namespace heddle {

OrderList::OrderList(size_t count) : links_(count + 1), labels_(count + 1) {
  for (size_t slot = 0; slot < links_.size(); ++slot)
    Connect(static_cast<uint32_t>(slot), static_cast<uint32_t>((slot + 1) % links_.size()));
  Spread(links_[kHead].next, count, 0, kLabelBits);
}

// The first label that an entry behind `slot` cannot have.
uint64_t OrderList::LabelBehind(uint32_t slot) const {
  uint32_t next = links_[slot].next;
  return next == kHead ? uint64_t{1} << kLabelBits : labels_[next];
}

// Labels from `begin`, in a range of 2^bits, for `count` entries from `first` on. None is 0.
void OrderList::Spread(uint32_t first, size_t count, uint64_t begin, int bits) {
  if (count == 0) return;
  uint64_t step = (uint64_t{1} << bits) / count;
  uint64_t label = begin + step / 2;
  for (size_t i = 0; i < count; ++i, label += step) {
    labels_[first] = label;
    first = links_[first].next;
  }
}

// Leaves a free label behind `after`.
void OrderList::MakeRoom(uint32_t after) {
  // A range of 2^bits labels is crowded with more than 1.5^bits entries: the larger a range is, the less full it may be, so
  // that many entries go in before it must be spread again.
  uint32_t slot = after == kHead ? links_[kHead].next : after;
  uint32_t first = slot;
  uint32_t last = slot;
  size_t count = 1;
  double most = 1;
  for (int bits = 1;; ++bits) {
    most *= 1.5;
    uint64_t begin = labels_[slot] >> bits << bits;
    uint64_t end = begin + (uint64_t{1} << bits);
    for (; links_[first].previous != kHead && labels_[links_[first].previous] >= begin; ++count)
      first = links_[first].previous;
    for (; links_[last].next != kHead && labels_[links_[last].next] < end; ++count)
      last = links_[last].next;
    if (static_cast<double>(count) > most && bits < kLabelBits) continue;
    Spread(first, count, begin, bits);
    if (LabelBehind(after) - labels_[after] > 1) return;
  }
}

void OrderList::Link(uint32_t slot, uint32_t after) {
  if (LabelBehind(after) - labels_[after] < 2) MakeRoom(after);
  labels_[slot] = labels_[after] + (LabelBehind(after) - labels_[after]) / 2;
  uint32_t next = links_[after].next;
  Connect(after, slot);
  Connect(slot, next);
}

uint32_t OrderList::AddAfter(uint32_t entry) {
  auto slot = static_cast<uint32_t>(links_.size());
  links_.emplace_back();
  labels_.emplace_back();
  Link(slot, Slot(entry));
  return slot - 1;
}

bool OrderList::MoveAfter(uint32_t entry, uint32_t after) {
  if (entry == after || Previous(entry) == after) return false;
  uint32_t slot = Slot(entry);
  Connect(links_[slot].previous, links_[slot].next);
  Link(slot, Slot(after));
  return true;
}

}  // namespace heddle
