#include "heddle/run/metrics/protobuf.h"

namespace heddle::run {
namespace {

// Wire types. A field is its number and wire type, then its content.
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void AppendTag(std::string& out, uint64_t field, Wire wire) {
  AppendVarint(out, field << 3 | wire);
}

std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

}  // namespace

void AppendNumber(std::string& message, uint64_t field, uint64_t value) {
  AppendTag(message, field, kVarint);
  AppendVarint(message, value);
}

void AppendFloat(std::string& message, uint64_t field, float value) {
  AppendTag(message, field, kFixed32);
  AppendFixed(message, value);
}

void AppendDouble(std::string& message, uint64_t field, double value) {
  AppendTag(message, field, kFixed64);
  AppendFixed(message, value);
}

void AppendBytes(std::string& message, uint64_t field, std::string_view bytes) {
  AppendTag(message, field, kBytes);
  AppendVarint(message, bytes.size());
  message += bytes;
}

std::optional<ProtoField> TakeField(std::string_view& message) {
  std::optional<uint64_t> tag = TakeVarint(message);
  if (!tag) return std::nullopt;
  ProtoField out{.field = *tag >> 3};
  std::optional<uint64_t> size;
  switch (*tag & 7) {
    case kVarint: {
      std::optional<uint64_t> value = TakeVarint(message);
      if (!value) return std::nullopt;
      out.value = *value;
      return out;
    }
    case kFixed64: size = 8; break;
    case kFixed32: size = 4; break;
    case kBytes: size = TakeVarint(message); break;
    default: break;
  }
  if (!size || *size > message.size()) return std::nullopt;
  out.bytes = message.substr(0, *size);
  message.remove_prefix(*size);
  return out;
}

std::optional<ProtoField> FindField(std::string_view message, uint64_t field) {
  std::optional<ProtoField> found;
  while (std::optional<ProtoField> next = TakeField(message)) {
    if (next->field == field) found = next;
  }
  return found;
}

}  // namespace heddle::run
