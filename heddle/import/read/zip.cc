#include "heddle/import/read/zip.h"

#include <algorithm>
#include <optional>

#include <zlib.h>

#include "heddle/core/base/file.h"

namespace heddle {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kDirectoryEnd = 0x06054b50;
constexpr uint32_t kDirectoryEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kEndBytes = 22;
constexpr size_t kEntryBytes = 46;
constexpr size_t kLocalBytes = 30;
constexpr uint32_t kIn64 = 0xffffffff;
// Largest accepted compression ratio: text stays below it, zip bombs do not.
constexpr uint64_t kMostGrowth = 64;

// Little-endian number at an offset; 0 past the end, which matches no signature.
uint64_t NumberAt(std::string_view bytes, uint64_t at, size_t width) {
  if (at > bytes.size() || bytes.size() - at < width) return 0;
  uint64_t number = 0;
  for (size_t i = width; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  return number;
}
uint16_t Half(std::string_view bytes, uint64_t at) {
  return static_cast<uint16_t>(NumberAt(bytes, at, 2));
}
uint32_t Word(std::string_view bytes, uint64_t at) {
  return static_cast<uint32_t>(NumberAt(bytes, at, 4));
}

// Whether [at, at + size) is inside the file.
bool Fits(std::string_view bytes, uint64_t at, uint64_t size) {
  return at <= bytes.size() && size <= bytes.size() - at;
}

bool IsTrick(std::string_view name) {
  bool odd = name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos ||
             name.find('\0') != std::string_view::npos;
  for (size_t at = 0; at <= name.size() && !odd;) {
    size_t end = std::min(name.find('/', at), name.size());
    odd = name.substr(at, end - at) == "..";
    at = end + 1;
  }
  return odd;
}

// An extra field has sizes and offsets beyond 32 bits: those that the entry leaves open, in this
// order.
void Read64(std::string_view extra, ZipArchive::Entry& entry) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    size_t length = Half(extra, at + 2);
    if (Half(extra, at) == 1) {
      std::string_view field = extra.substr(at + 4, length);
      size_t next = 0;
      for (uint64_t* number : {&entry.size, &entry.packed, &entry.offset}) {
        if (*number != kIn64 || field.size() - next < 8) continue;
        *number = NumberAt(field, next, 8);
        next += 8;
      }
      return;
    }
    at += 4 + length;
  }
}

}  // namespace

bool IsZip(std::string_view bytes) {
  uint32_t begin = Word(bytes, 0);
  return begin == kLocalHeader || begin == kDirectoryEnd;
}

Result<ZipArchive> ZipArchive::Open(std::string_view bytes, const std::string& file) {
  ZipArchive archive;
  archive.bytes_ = bytes;
  archive.file_ = file;
  HEDDLE_RETURN_IF_ERROR(archive.ReadDirectory());
  return archive;
}

Status ZipArchive::ReadDirectory() {
  // A comment of up to 64 KiB may follow the end record.
  size_t least = bytes_.size() > kEndBytes + 0xffff ? bytes_.size() - kEndBytes - 0xffff : 0;
  std::optional<size_t> end;
  for (size_t at = bytes_.size() < kEndBytes ? 0 : bytes_.size() - kEndBytes + 1; at-- > least;) {
    if (Word(bytes_, at) != kDirectoryEnd) continue;
    end = at;
    break;
  }
  if (!end) return Fail("the archive has no end record; it is truncated");
  uint64_t count = Half(bytes_, *end + 10);
  uint64_t at = Word(bytes_, *end + 16);
  bool large = count == 0xffff || at == kIn64;
  if (large && *end >= 20 && Word(bytes_, *end - 20) == kLocator64) {
    uint64_t wide = NumberAt(bytes_, *end - 12, 8);
    if (Word(bytes_, wide) != kDirectoryEnd64) return Fail("the archive has no directory");
    count = NumberAt(bytes_, wide + 32, 8);
    at = NumberAt(bytes_, wide + 48, 8);
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (!Fits(bytes_, at, kEntryBytes) || Word(bytes_, at) != kDirectoryEntry)
      return Fail("the directory has {} entries, but entry {} is missing", count, i + 1);
    uint64_t name = Half(bytes_, at + 28);
    uint64_t extra = Half(bytes_, at + 30);
    uint64_t comment = Half(bytes_, at + 32);
    if (!Fits(bytes_, at + kEntryBytes, name + extra + comment))
      return Fail("entry {} of the directory extends past the end of the file", i + 1);
    Entry entry;
    entry.name = bytes_.substr(at + kEntryBytes, name);
    entry.method = Half(bytes_, at + 10);
    entry.checksum = Word(bytes_, at + 16);
    entry.packed = Word(bytes_, at + 20);
    entry.size = Word(bytes_, at + 24);
    entry.offset = Word(bytes_, at + 42);
    Read64(bytes_.substr(at + kEntryBytes + name, extra), entry);
    if (IsTrick(entry.name)) return Fail("entry {} has a path outside the archive", i + 1);
    entries_.push_back(entry);
    at += kEntryBytes + name + extra + comment;
  }
  return Done{};
}

Result<std::string> ZipArchive::Read(const Entry& entry) const {
  uint64_t at = entry.offset;
  if (!Fits(bytes_, at, kLocalBytes) || Word(bytes_, at) != kLocalHeader)
    return Fail("`{}` is not at the offset that the directory states", entry.name);
  uint64_t data = at + kLocalBytes + Half(bytes_, at + 26) + Half(bytes_, at + 28);
  if (!Fits(bytes_, data, entry.packed))
    return Fail("`{}` has {} bytes and extends past the end of the file", entry.name, entry.packed);
  std::string_view packed = bytes_.substr(data, entry.packed);
  if (entry.method == 8 && entry.size > kMostGrowth * (entry.packed + 1))
    return Fail("`{}` claims {} bytes in {}", entry.name, entry.size, entry.packed);
  if (entry.size > static_cast<uint64_t>(kMaxFileBytes.value))
    return Fail("`{}` has {} bytes, the limit is {}", entry.name, entry.size,
                Format(kMaxFileBytes));
  std::string content;
  if (entry.method == 0) {
    if (entry.size != entry.packed)
      return Fail("`{}` is not compressed, but its sizes are {} and {} bytes", entry.name,
                  entry.size, entry.packed);
    content = packed;
  } else if (entry.method == 8) {
    content.resize(entry.size);
    z_stream stream = {};
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(content.data());
    stream.avail_out = static_cast<uInt>(content.size());
    // Raw data without zlib's header.
    bool good = packed.size() <= UINT32_MAX && content.size() <= UINT32_MAX &&
                inflateInit2(&stream, -MAX_WBITS) == Z_OK;
    if (good) {
      good = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.total_out == content.size();
      inflateEnd(&stream);
    }
    if (!good) return Fail("`{}` does not decompress to its {} bytes", entry.name, entry.size);
  } else {
    return Fail("`{}` is compressed with method {}, which is not supported", entry.name,
                entry.method);
  }
  uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  // PyTorch's writer may omit it.
  if (entry.checksum != 0 && checksum != entry.checksum)
    return Fail("the checksum of `{}` differs from the directory's", entry.name);
  return content;
}

}  // namespace heddle
