#include "heddle/core/base/gzip.h"

#include <algorithm>

#include <zlib.h>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// A zlib stream that the destructor ends.
struct Inflater {
  z_stream stream{};
  // A window of 15 bits; 16 selects the gzip header.
  bool ok = ::inflateInit2(&stream, 15 + 16) == Z_OK;
  Inflater() = default;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { ::inflateEnd(&stream); }
};

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

Result<std::string> Gunzip(std::string_view bytes, size_t most) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  if (!inflater.ok) return Error(Diag::kGzip, "zlib cannot be initialised");
  std::string out;
  char buffer[1 << 16];
  size_t at = 0;
  for (;;) {
    size_t piece = std::min<size_t>(bytes.size() - at, 1 << 20);
    // zlib does not write to its input.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + at));
    stream.avail_in = static_cast<uInt>(piece);
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof buffer;
    int code = ::inflate(&stream, Z_NO_FLUSH);
    at += piece - stream.avail_in;
    size_t made = sizeof buffer - stream.avail_out;
    if (made > most - out.size())
      return Error(Diag::kGzip, "more than {} bytes when uncompressed",
                   WithCommas(static_cast<int64_t>(most)));
    out.append(buffer, made);
    if (code == Z_STREAM_END) {
      if (at == bytes.size()) return out;
      if (!IsGzip(bytes.substr(at)))
        return Error(Diag::kGzip, "{} bytes follow the compressed data, which ends at byte {}",
                     bytes.size() - at, at);
      ::inflateReset(&stream);
    } else if (code == Z_BUF_ERROR || (code == Z_OK && made == 0 && at == bytes.size())) {
      return Error(Diag::kGzip, "the compressed data is truncated at byte {}", at);
    } else if (code != Z_OK) {
      return Error(Diag::kGzip, "the compressed data is damaged at byte {}: {}", at,
                   stream.msg != nullptr ? stream.msg : "unknown");
    }
  }
}

}  // namespace heddle
