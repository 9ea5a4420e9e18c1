// LevelDB's log: blocks of 32 KiB with frames of a checksum, a size and a kind. A record that does
// not fit into its block continues in the next one.
#include <utility>

#include "heddle/run/metrics/crc32.h"
#include "heddle/run/metrics/protobuf.h"
#include "heddle/run/metrics/wandb.h"

namespace heddle::run {
namespace {

constexpr uint64_t kBlock = 32768;
constexpr uint64_t kFrameHeader = 7;
// `:W&B`, a magic number of 16 bits, and a version.
constexpr std::string_view kFileHeader(":W&B\xE1\xBE\0", 7);

enum Frame : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

// Not LevelDB's checksum.
uint32_t ChecksumOf(uint8_t kind, std::string_view part) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += part;
  return Crc32(bytes);
}

template <typename T>
T FixedAt(std::string_view bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

std::string WandbFrame(std::string_view record, uint64_t offset) {
  std::string out;
  if (offset == 0) out = kFileHeader;
  for (bool first = true, last = false; !last; first = false) {
    uint64_t left = kBlock - (offset + out.size()) % kBlock;
    if (left < kFrameHeader) {
      out.append(left, '\0');
      left = kBlock;
    }
    std::string_view part = record.substr(0, left - kFrameHeader);
    record.remove_prefix(part.size());
    last = record.empty();
    auto kind = static_cast<uint8_t>(first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle));
    AppendFixed(out, ChecksumOf(kind, part));
    AppendFixed(out, static_cast<uint16_t>(part.size()));
    AppendFixed(out, kind);
    out += part;
  }
  return out;
}

Result<std::vector<std::string>> ReadWandbRecords(std::string_view file, const std::string& path) {
  if (!file.starts_with(kFileHeader))
    return Error(Diag::kFileRead, "`{}` is not the file of a W&B run; move it away", path);
  std::vector<std::string> records;
  std::string record;
  bool inside = false;
  for (uint64_t at = kFileHeader.size(); at < file.size();) {
    uint64_t left = kBlock - at % kBlock;
    if (left < kFrameHeader) {
      at += left;
      continue;
    }
    if (file.size() - at < kFrameHeader) break;
    auto size = FixedAt<uint16_t>(file, at + 4);
    auto kind = FixedAt<uint8_t>(file, at + 6);
    if (size > left - kFrameHeader || size > file.size() - at - kFrameHeader) break;
    std::string_view part = file.substr(at + kFrameHeader, size);
    bool begins = kind == kFull || kind == kFirst;
    bool fits = begins ? !inside : inside && (kind == kMiddle || kind == kLast);
    if (!fits || FixedAt<uint32_t>(file, at) != ChecksumOf(kind, part)) break;
    record += part;
    at += kFrameHeader + size;
    inside = kind == kFirst || kind == kMiddle;
    if (inside) continue;
    records.push_back(std::exchange(record, {}));
  }
  return records;
}

}  // namespace heddle::run
