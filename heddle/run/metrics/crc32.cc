#include "heddle/run/metrics/crc32.h"

#include <array>

namespace heddle::run {
namespace {

using Table = std::array<uint32_t, 256>;

// The effect of each byte on the checksum of a reflected polynomial.
constexpr Table MakeTable(uint32_t polynomial) {
  Table table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr Table kZlib = MakeTable(0xEDB88320u);
constexpr Table kCastagnoli = MakeTable(0x82F63B78u);

uint32_t Checksum(const Table& table, std::string_view bytes) {
  uint32_t crc = ~0u;
  for (char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

}  // namespace

uint32_t Crc32(std::string_view bytes) { return Checksum(kZlib, bytes); }
uint32_t Crc32c(std::string_view bytes) { return Checksum(kCastagnoli, bytes); }

uint32_t MaskedCrc32c(std::string_view bytes) {
  uint32_t crc = Crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

}  // namespace heddle::run
