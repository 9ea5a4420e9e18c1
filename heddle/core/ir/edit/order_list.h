// OrderList: numbers in an order that changes. Which of two comes first is answered at once.
//
// A doubly linked list over 0, 1, 2, ..., whose entries carry labels that rise along it. An entry that is put between two
// others gets a label between theirs. Where there is no room left, the smallest neighbourhood that is not crowded gets new
// labels, evenly spread (Bender, Cole, Demaine, Farach-Colton and Zito, "Two simplified algorithms for maintaining order in
// a list"): logarithmic in the number of entries for each change, on average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

class OrderList {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // 0 to `count - 1`, in this order.
  explicit OrderList(size_t count = 0);

  size_t size() const { return labels_.size() - 1; }
  // The neighbours of an entry; kNone behind the last and before the first. `Next(kNone)` is the first, `Previous(kNone)`
  // the last.
  uint32_t Next(uint32_t entry) const { return links_[Slot(entry)].next - 1; }
  uint32_t Previous(uint32_t entry) const { return links_[Slot(entry)].previous - 1; }
  bool Before(uint32_t a, uint32_t b) const { return labels_[Slot(a)] < labels_[Slot(b)]; }

  // A new entry, numbered `size()`, behind another; behind kNone it is the first.
  uint32_t AddAfter(uint32_t entry);
  // Both are entries; `after` may be kNone. False if the entry stands there already.
  bool MoveAfter(uint32_t entry, uint32_t after);
  // All entries in the given order.
  template <typename Range>
  void Assign(const Range& order) {
    uint32_t last = kHead;
    for (uint32_t entry : order) {
      Connect(last, Slot(entry));
      last = Slot(entry);
    }
    Connect(last, kHead);
    Spread(links_[kHead].next, size(), 0, kLabelBits);
  }

 private:
  // The head of a ring. Entries follow it, so that new ones can be added at the end; kNone is the head.
  static constexpr uint32_t kHead = 0;
  // Labels are below 2^62. The head's is 0 and never given to an entry.
  static constexpr int kLabelBits = 62;

  struct Links {
    uint32_t next = kHead;
    uint32_t previous = kHead;
  };

  static uint32_t Slot(uint32_t entry) { return entry + 1; }
  void Connect(uint32_t slot, uint32_t next) {
    links_[slot].next = next;
    links_[next].previous = slot;
  }
  uint64_t LabelBehind(uint32_t slot) const;
  void Link(uint32_t slot, uint32_t after);
  void MakeRoom(uint32_t after);
  void Spread(uint32_t first, size_t count, uint64_t begin, int bits);

  std::vector<Links> links_;
  std::vector<uint64_t> labels_;
};

}  // namespace heddle
