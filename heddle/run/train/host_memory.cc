#include "heddle/run/train/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

namespace heddle::run {
namespace {

std::optional<int64_t> Number(std::string_view text) {
  size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return std::nullopt;
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Returns the number in a line `NAME:  123 kB` of a file.
std::optional<int64_t> KilobytesIn(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return Number(line);
  }
  return std::nullopt;
}

// Returns the number in a file; nullopt for `max`.
std::optional<int64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? Number(line) : std::nullopt;
}

std::optional<Bytes> FromKilobytes(std::optional<int64_t> kilobytes) {
  return kilobytes ? std::optional(Bytes{*kilobytes * 1024}) : std::nullopt;
}

}  // namespace

HostMemory ReadHostMemory() {
  HostMemory memory{FromKilobytes(KilobytesIn("/proc/meminfo", "MemTotal:")),
                    FromKilobytes(KilobytesIn("/proc/meminfo", "MemAvailable:"))};
  std::optional<int64_t> limit = NumberIn("/sys/fs/cgroup/memory.max");
  std::optional<int64_t> used = NumberIn("/sys/fs/cgroup/memory.current");
  if (!limit || !used || !memory.total || !memory.available) return memory;
  memory.total = std::min(*memory.total, Bytes{*limit});
  memory.available = std::min(*memory.available, Bytes{std::max<int64_t>(*limit - *used, 0)});
  return memory;
}

std::optional<Bytes> PeakResident() {
  return FromKilobytes(KilobytesIn("/proc/self/status", "VmHWM:"));
}

}  // namespace heddle::run
