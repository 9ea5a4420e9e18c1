#include "heddle/cli/manual/help.h"

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// Below this width a description is under its name instead of next to it.
constexpr size_t kTwoColumns = 72;
constexpr size_t kNameColumns = 34;
constexpr size_t kNarrowIndent = 6;

constexpr std::string_view kExitCodes =
    "Exit codes: 0 success, 1 error in flags or input, 2 difference found, 3 infeasible, 4 failure "
    "at run time.";

// Wraps `text` at `width`. All lines except the first begin at `column`.
std::string Wrap(std::string_view text, size_t column, size_t width) {
  std::string out;
  size_t used = column;
  for (std::string_view word : Split(text, ' ')) {
    if (used > column && used + 1 + word.size() > width) {
      out += "\n" + std::string(column, ' ');
      used = column;
    } else if (used > column) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
  }
  return out + "\n";
}

// A name and its description next to it, or below it if it does not fit.
std::string Entry(const std::string& name, std::string_view text, size_t width) {
  size_t column = width < kTwoColumns ? kNarrowIndent : kNameColumns;
  std::string out = "  " + name;
  if (out.size() + 2 > column) {
    out += "\n" + std::string(column, ' ');
  } else {
    out.resize(column, ' ');
  }
  return out + Wrap(text, column, width);
}

}  // namespace

std::string FormatHelp(const CommandInfo& command, size_t width) {
  std::string out = fmt::format("{}\nusage: heddle {}{}\n", Wrap(command.summary, 0, width),
                                command.name, command.usage);
  std::string section;
  auto head = [&](const std::string& title) {
    if (title != section) out += fmt::format("\n{}:\n", title);
    section = title;
  };
  bool general = false;
  for (const FlagInfo& flag : command.flags) {
    head(flag.section);
    out += Entry(flag.Title(), flag.help, width);
    general |= flag.section == "General";
  }
  if (!general) head("General");
  out += Entry("-h, --help", "print this help", width);
  if (!command.examples.empty()) {
    out += "\nExamples:\n";
    for (std::string_view line : Split(command.examples, '\n')) out += fmt::format("  {}\n", line);
  }
  if (!command.note.empty()) out += "\n" + Wrap(command.note, 0, width);
  return out;
}

std::string FormatHelp(const std::vector<CommandInfo>& commands, size_t width) {
  std::string out =
      "Heddle: graph compiler and runtime for distributed training\n\nusage: heddle COMMAND "
      "...\n\nCommands:\n";
  for (const CommandInfo& command : commands) out += Entry(command.name, command.summary, width);
  out += "\n" + Wrap(
                    "`heddle help COMMAND` describes a command and shows examples. `heddle "
                    "--version` prints the version.",
                    0, width);
  return out + Wrap(kExitCodes, 0, width);
}

}  // namespace heddle
