// Runs everything on a text that Heddle does with texts. The fuzzer and the damage tests share it.
#pragma once

#include <string>

namespace heddle {

struct Exercised {
  bool accepted = false;
  // The violated property, with the text or the values that show it; empty if all hold.
  std::string problem;
};

// Parses `text`. An accepted text must print, parse back and print the same again, and run through
// analyses, the simulator and passes. A rejected text must give a message that points into it.
Exercised Exercise(const std::string& text);

}  // namespace heddle
