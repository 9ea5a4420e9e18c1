// Where a text stops being JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace heddle {

// simdjson is fast and says what is wrong, but not where. A second reader, which is slow and keeps nothing, says it. None where a text is
// too deep, or the reader of the program wants something else of it.
std::optional<size_t> FindJsonMistake(std::string_view text);

}  // namespace heddle
