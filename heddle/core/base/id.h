// Typed 32-bit ids and the dense tables they index.
//
// An id is an index into one kind of table. It hashes and compares as a number, and a side table
// over ids is a plain vector. A default-constructed id is "none".
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(size_t index) : index_(static_cast<uint32_t>(index)) {}

  constexpr uint32_t index() const { return index_; }
  constexpr explicit operator bool() const { return index_ != kNone; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t index_ = kNone;
};

// The ids from `begin` up to, but not including, `end`.
template <typename IdT>
class IdRange {
 public:
  class Iterator {
   public:
    using value_type = IdT;
    using difference_type = std::ptrdiff_t;
    constexpr Iterator() = default;
    constexpr explicit Iterator(size_t index) : index_(index) {}
    constexpr IdT operator*() const { return IdT(index_); }
    constexpr Iterator& operator++() {
      ++index_;
      return *this;
    }
    constexpr Iterator operator++(int) { return Iterator(index_++); }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    size_t index_ = 0;
  };

  constexpr IdRange(size_t begin, size_t end) : begin_(begin), end_(end) {}
  constexpr Iterator begin() const { return Iterator(begin_); }
  constexpr Iterator end() const { return Iterator(end_); }
  constexpr size_t size() const { return end_ - begin_; }
  constexpr bool empty() const { return begin_ == end_; }
  constexpr IdT operator[](size_t i) const { return IdT(begin_ + i); }

 private:
  size_t begin_;
  size_t end_;
};

// A vector indexed by one kind of id.
template <typename IdT, typename T>
class Table {
 public:
  Table() = default;
  explicit Table(size_t size, const T& fill = T()) : items_(size, fill) {}

  decltype(auto) operator[](IdT id) { return items_[id.index()]; }
  decltype(auto) operator[](IdT id) const { return items_[id.index()]; }
  size_t size() const { return items_.size(); }
  IdRange<IdT> ids() const { return {0, items_.size()}; }
  IdT Add(T item) {
    items_.push_back(std::move(item));
    return IdT(items_.size() - 1);
  }
  void reserve(size_t n) { items_.reserve(n); }
  void resize(size_t n, const T& fill = T()) { items_.resize(n, fill); }
  void clear() { items_.clear(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 private:
  std::vector<T> items_;
};

}  // namespace heddle
