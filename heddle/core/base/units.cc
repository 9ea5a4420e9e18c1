#include "heddle/core/base/units.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>

namespace heddle {
namespace {

struct Scale {
  double factor;
  const char* name;
};

// The largest scale with at least one whole unit. `scales` are in descending order.
std::string FormatScaled(double value, std::span<const Scale> scales, const char* unit) {
  for (const Scale& scale : scales) {
    if (std::abs(value) >= scale.factor)
      return fmt::format("{:.2f} {}", value / scale.factor, scale.name);
  }
  return fmt::format("{:.0f} {}", value, unit);
}

constexpr Scale kByteScales[] = {
    {0x1p50, "PiB"}, {0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}};
constexpr Scale kTimeScales[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
constexpr Scale kFlopScales[] = {
    {1e18, "EFLOP"}, {1e15, "PFLOP"}, {1e12, "TFLOP"}, {1e9, "GFLOP"}, {1e6, "MFLOP"}};

struct Suffix {
  std::string_view name;
  double factor;
};
constexpr Suffix kByteSuffixes[] = {
    {"", 1},     {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
constexpr Suffix kTimeSuffixes[] = {{"ns", 1},  {"us", 1e3},   {"ms", 1e6},
                                    {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};

// A number of at least 0 with one of the suffixes.
std::optional<double> ParseScaled(std::string_view text, std::span<const Suffix> suffixes) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  for (const Suffix& known : suffixes) {
    if (suffix == known.name) return number * known.factor;
  }
  return std::nullopt;
}

}  // namespace

std::string Format(Bytes bytes) {
  return FormatScaled(static_cast<double>(bytes.value), kByteScales, "B");
}
std::string Format(Nanos nanos) {
  return FormatScaled(static_cast<double>(nanos.value), kTimeScales, "ns");
}
std::string Format(Flops flops) {
  return FormatScaled(static_cast<double>(flops.value), kFlopScales, "FLOP");
}

Result<Bytes> ParseBytes(std::string_view text) {
  std::optional<double> bytes = ParseScaled(text, kByteSuffixes);
  if (!bytes)
    return Error(Diag::kBadSize,
                 "`{}` is not a size; write a number and B, KiB, MiB or GiB, as in `64MiB`", text);
  if (*bytes >= 0x1p63) return Error(Diag::kSizeOverflow, "size `{}` exceeds 2^63 - 1 bytes", text);
  return Bytes{static_cast<int64_t>(*bytes)};
}

Result<Nanos> ParseDuration(std::string_view text) {
  std::optional<double> nanos = ParseScaled(text, kTimeSuffixes);
  if (!nanos || *nanos >= 0x1p63)
    return Error(Diag::kDuration,
                 "`{}` is not a duration; write a number and us, ms, s, min or h, as in `10s`",
                 text);
  return Nanos{static_cast<int64_t>(*nanos)};
}

}  // namespace heddle
