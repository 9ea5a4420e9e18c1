// The checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::run {

// CRC-32C (Castagnoli): 0xE3069283 for `123456789`.
uint32_t Crc32c(std::string_view bytes);
// TFRecord's masked form, which stays robust if the bytes contain checksums themselves.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace heddle::run
