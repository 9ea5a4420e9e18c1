// The checksums of files of metrics.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::run {

// zlib's CRC-32: 0xCBF43926 for `123456789`. W&B's files have it.
uint32_t Crc32(std::string_view bytes);
// CRC-32C (Castagnoli): 0xE3069283 for `123456789`. TFRecord's files have it.
uint32_t Crc32c(std::string_view bytes);
// TFRecord's masked form, which stays robust if the bytes contain checksums themselves.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace heddle::run
