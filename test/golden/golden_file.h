// Golden files (.hdt): inputs, the command that reads them, and its whole output.
//
//   // RUN: heddle opt --pipeline=dce %s          for all cases below, or for its case
//   // RUN: heddle capture ... | heddle stats %s  a command reads the output of another as %s
//   // RUN: heddle sim --json %s | json /streams  the value at a JSON pointer, one line per member
//   --- file c                                    another input of all cases, %c
//
//   === name_of_the_case                          `fail_...` if the command must fail
//   heddle 1 local                                the input, which the command reads as %s
//   ...
//   --- file b                                    another input, %b
//   --- out                                       standard output, with TIME for times;
//                                                 `--- out unchanged` if it equals the input
//   --- error                                     standard error, up to its first section
//   --- remarks, --- stats, ...                   sections that the command printed to stderr
//   --- exit 2                                    an exit code other than 0 (or 1 in `fail_...`)
//   --- equal ranks=4                             input and output give the same bits on 4 ranks;
//                                                 global graphs run on one device
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct GoldenSection {
  // The line without the dashes: `out`, `file b`, `equal ranks=4`.
  std::string header;
  std::string text;
};

struct GoldenCase {
  std::string name;
  // Comment lines before the input, including RUN lines.
  std::string preamble;
  std::string input;
  std::vector<GoldenSection> sections;

  bool must_fail() const { return name.starts_with("fail_"); }
  const GoldenSection* Find(std::string_view header) const;
};

struct GoldenFile {
  // Everything before the first case, and the files in it.
  std::string preamble;
  std::vector<GoldenSection> files;
  std::vector<GoldenCase> cases;
};

GoldenFile ParseGolden(std::string_view text);
std::string PrintGolden(const GoldenFile& file);

// Returns the commands of the RUN lines in a preamble.
std::vector<std::string> RunLines(std::string_view preamble);

}  // namespace heddle
