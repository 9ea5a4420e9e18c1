// Does to a text all that Heddle does to texts. Shared by the fuzzer and by the tests that damage good texts.
#pragma once

#include <string>

namespace heddle {

// Parses `text`; if it is accepted, checks that it prints and parses back, and runs analyses, facts and passes over it.
// Aborts on anything that must not happen. Returns whether the text was accepted.
bool Exercise(const std::string& text);

}  // namespace heddle
