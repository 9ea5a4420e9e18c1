// AttentionCache: keys and values of the positions that a model has seen, for decoding.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

namespace heddle::run {

class AttentionCache {
 public:
  // For sequences of at most `room` positions.
  explicit AttentionCache(int64_t room) : room_(room) {}

  int64_t room() const { return room_; }
  // Number of positions, with those of the running forward.
  int64_t size() const { return end_; }
  void Clear() { end_ = 0; }
  // Begins a forward of the next positions.
  void Begin(int64_t positions);
  // Returns the rows of the forward's positions. The first row of a table belongs to the first
  // position of the sequence.
  at::Tensor Rows(const at::Tensor& table) const { return table.slice(0, begin_, end_); }
  // Appends keys and values, [batch, heads, positions, size], of the module that is running.
  // Returns those of all positions, as views that the next call for the module changes.
  std::pair<at::Tensor, at::Tensor> Append(const at::Tensor& keys, const at::Tensor& values);

 private:
  struct Entry {
    at::Tensor keys;
    at::Tensor values;
  };

  int64_t room_;
  // The positions of the forward.
  int64_t begin_ = 0;
  int64_t end_ = 0;
  // By module.
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace heddle::run
