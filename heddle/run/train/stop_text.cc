#include "heddle/run/train/stop_text.h"

#include <algorithm>

namespace heddle::run {

std::optional<size_t> StopText::Find(std::string_view text) const {
  size_t first = std::string_view::npos;
  for (const std::string& stop : stops_) first = std::min(first, text.find(stop));
  return first == std::string_view::npos ? std::nullopt : std::optional(first);
}

size_t StopText::Settled(std::string_view text) const {
  size_t settled = text.size();
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, text.size());
    while (!text.ends_with(std::string_view(stop).substr(0, length))) --length;
    settled = std::min(settled, text.size() - length);
  }
  return settled;
}

}  // namespace heddle::run
