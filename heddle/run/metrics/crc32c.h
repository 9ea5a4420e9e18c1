// The checksum of TFRecord.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::run {

// CRC-32C (Castagnoli): 0xE3069283 for `123456789`.
uint32_t Crc32c(std::string_view bytes);
// Rotated and shifted, so that checksums of what holds checksums differ from them.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace heddle::run
