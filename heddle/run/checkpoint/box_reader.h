// Parts of a tensor in a file, put into parts of a tensor in memory.
#pragma once

#include <string>

#include "heddle/core/base/result.h"
#include "heddle/run/checkpoint/piece.h"

namespace heddle::run {

struct BoxRead {
  std::string path;
  // Where the piece begins in the file, and the bytes of an element.
  int64_t begin = 0;
  int64_t item = 0;
  // All in the whole tensor: what the file has, what is wanted, and what both have in common, which has elements.
  const Slice& piece;
  const Slice& common;
  const Slice& slice;
};

// Puts the common box at its place in the slice, which begins at `to`. Reads little more than it needs.
Status ReadBox(const BoxRead& read, char* to);

}  // namespace heddle::run
