// Golden files (.hdt): inputs, the command that reads them, and all of what it prints.
//
//   // RUN: heddle opt --pipeline=dce %s          for all cases below, or inside a case for that case
//   // RUN: heddle capture ... | heddle stats %s  a command reads the output of another as %s
//   // RUN: heddle sim --json %s | json /streams  the value at a JSON pointer, a line for each member
//   --- file c                                    another input of all cases, %c
//
//   === name_of_the_case                          `fail_...` if the command must fail
//   heddle 1 local                                the input, which the command reads as %s
//   ...
//   --- file b                                    another input, %b
//   --- out                                       standard output, with TIME for times; `--- out unchanged` if it is the input
//   --- error                                     standard error, up to the first section that it holds itself
//   --- remarks, --- stats, ...                   sections that the command printed to standard error
//   --- exit 2                                    if the exit code is neither 0, nor 1 in a case that must fail
//   --- equal ranks=4                             input and output give the same bits on so many ranks; global ones run whole
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct GoldenSection {
  // Without the dashes: `out`, `file b`, `equal ranks=4`.
  std::string header;
  std::string text;
};

struct GoldenCase {
  std::string name;
  // Comment lines in front of the input, RUN lines included.
  std::string preamble;
  std::string input;
  std::vector<GoldenSection> sections;

  bool must_fail() const { return name.starts_with("fail_"); }
  const GoldenSection* Find(std::string_view header) const;
};

struct GoldenFile {
  // Everything in front of the first case; and the files that it holds.
  std::string preamble;
  std::vector<GoldenSection> files;
  std::vector<GoldenCase> cases;
};

GoldenFile ParseGolden(std::string_view text);
std::string PrintGolden(const GoldenFile& file);

// The commands of the RUN lines in a preamble.
std::vector<std::string> RunLines(std::string_view preamble);

}  // namespace heddle
