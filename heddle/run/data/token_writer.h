// Writes a folder of tokens: `train.bin` and `train.idx` in the format of Megatron-LM, or, with a
// loss mask, `train.safetensors`.
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
  // 65536 and have no mask, otherwise in 32.
  static Result<TokenWriter> Create(const std::string& folder, int64_t vocab, bool masked);
  TokenWriter(TokenWriter&& other) noexcept;
  ~TokenWriter();

  // Appends documents: their tokens, one document after the other, and the number of tokens of
  // each. `mask` is empty, or has 1 for each token that counts towards the loss and otherwise 0.
  Status Add(std::span<const int32_t> tokens, std::span<const uint32_t> lengths,
             std::span<const uint8_t> mask);
  // Writes the index and renames the folder.
  Status Finish();

  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t tokens() const { return tokens_; }
  // The number of tokens that count towards the loss; all tokens without a mask.
  int64_t counted() const;

 private:
  TokenWriter() = default;
  Status Write(std::string_view bytes);
  Status WriteIndex() const;
  // Writes the other tensors after the tokens, and the header before them.
  Status FinishMasked();

  std::string folder_;
  std::string partial_;
  // The file with the tokens. Locked, so that two programs do not write the same folder.
  std::string path_;
  int bin_ = -1;
  bool narrow_ = false;
  bool masked_ = false;
  int64_t tokens_ = 0;
  std::vector<uint32_t> lengths_;
  std::vector<uint8_t> mask_;
  std::string buffer_;
};

}  // namespace heddle::run
