#include <iostream>

#include "heddle/cli/cli.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  heddle::Streams streams{std::cin, std::cout, std::cerr};
  return static_cast<int>(
      heddle::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), streams));
}
