// Writes a folder of tokens in the format of Megatron-LM: `train.bin` and `train.idx`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

// Writes to `FOLDER.partial`, and renames it at the end. So the folder is complete, or not there.
class TokenWriter {
 public:
  // Fails if the folder exists and has files. Tokens are stored in 16 bits if they are less than
  // 65536, otherwise in 32.
  static Result<TokenWriter> Create(const std::string& folder, int64_t vocab);
  TokenWriter(TokenWriter&& other) noexcept;
  ~TokenWriter();

  // Appends documents: their tokens, one document after the other, and the number of tokens of
  // each.
  Status Add(std::span<const int32_t> tokens, std::span<const uint32_t> lengths);
  // Writes the index and renames the folder.
  Status Finish();

  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t tokens() const { return tokens_; }

 private:
  TokenWriter() = default;
  Status Write(std::string_view bytes);
  Status WriteIndex() const;

  std::string folder_;
  std::string partial_;
  // Locked, so that two programs do not write the same folder.
  int bin_ = -1;
  bool narrow_ = false;
  int64_t tokens_ = 0;
  std::vector<uint32_t> lengths_;
  std::string buffer_;
};

}  // namespace heddle::run
