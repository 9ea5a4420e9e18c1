// StopText: strings that end a generated text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::run {

class StopText {
 public:
  // The strings must not be empty.
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the position of the first stop string in a text.
  std::optional<size_t> Find(std::string_view text) const;
  // Returns the length of the text without an end that may become part of a stop string.
  size_t Settled(std::string_view text) const;

 private:
  std::vector<std::string> stops_;
};

}  // namespace heddle::run
