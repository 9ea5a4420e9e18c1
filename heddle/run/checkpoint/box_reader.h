// Copies a part of a tensor from a file into a part of a tensor in memory.
#pragma once

#include <string>

#include "heddle/core/base/result.h"
#include "heddle/run/checkpoint/piece.h"

namespace heddle::run {

struct BoxRead {
  std::string path;
  // Byte at which the piece begins in the file, and bytes per element.
  int64_t begin = 0;
  int64_t item = 0;
  // Boxes in the whole tensor: the piece in the file, the slice in memory, and their intersection,
  // which is not empty.
  const Slice& piece;
  const Slice& common;
  const Slice& slice;
};

// Copies the common box from the file to its position in the slice, which begins at `to`. Reads few
// bytes that it does not need.
Status ReadBox(const BoxRead& read, char* to);

}  // namespace heddle::run
