// Fields of protocol buffers: writes and reads them without descriptions of messages.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::run {

template <typename T>
void AppendFixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// Each appends a field of a message: a whole number, a number of 32 or 64 bits, or bytes, which may
// be a text or another message.
void AppendNumber(std::string& message, uint64_t field, uint64_t value);
void AppendFloat(std::string& message, uint64_t field, float value);
void AppendDouble(std::string& message, uint64_t field, double value);
void AppendBytes(std::string& message, uint64_t field, std::string_view bytes);

struct ProtoField {
  uint64_t field = 0;
  // The value of a whole number.
  uint64_t value = 0;
  // The content of other kinds.
  std::string_view bytes = {};
};
// Takes the first field off a message. nullopt at its end, and if it is damaged.
std::optional<ProtoField> TakeField(std::string_view& message);
// Returns the last field with this number; nullopt if the message has none.
std::optional<ProtoField> FindField(std::string_view message, uint64_t field);

}  // namespace heddle::run
