// Values of flags that are words: one of a few, or true and false.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/text.h"

namespace heddle {

// What the word stands for. Fails with all of them, and with the nearest.
template <typename T>
Result<T> Choose(std::string_view flag, std::string_view given,
                 std::initializer_list<std::pair<std::string_view, T>> choices) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : choices) {
    if (name == given) return value;
    names.push_back(name);
  }
  return Error(Diag::kBadChoice, "{} is `{}`{}; it is one of {}", flag, given,
               NearestHint(given, names), Join(names, ", "));
}

inline Result<bool> ChooseBool(std::string_view flag, std::string_view given) {
  return Choose<bool>(flag, given, {{"true", true}, {"false", false}});
}

}  // namespace heddle
