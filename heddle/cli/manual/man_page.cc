#include "heddle/cli/manual/help.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// Escapes `text` for roff: backslashes, dashes, and lines that begin like a request.
std::string Roff(std::string_view text) {
  std::string out;
  for (char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string RoffExamples(const CommandInfo& command) {
  return command.examples.empty()
             ? ""
             : fmt::format(".PP\nExamples:\n.PP\n.EX\n{}\n.EE\n", Roff(command.examples));
}

}  // namespace

std::string FormatManPage(const std::vector<CommandInfo>& commands) {
  std::string out = fmt::format(
      ".TH HEDDLE 1 \"\" \"heddle {}\" \"User Commands\"\n"
      ".SH NAME\nheddle \\- graph compiler and runtime for distributed training\n"
      ".SH SYNOPSIS\n.B heddle\n.I COMMAND\n.RI [ ARGUMENTS ]\n"
      ".SH DESCRIPTION\nHeddle captures a training step as a graph, partitions it over a device\n"
      "mesh, overlaps communication with compute, simulates the result, and trains with it.\n"
      "Every command below is described by\n.B heddle help\n.I COMMAND\n"
      "as well.\n.SH COMMANDS\n",
      Version());
  for (const CommandInfo& command : commands) {
    out += fmt::format(".SS heddle {}{}\n{}.\n", Roff(command.name), Roff(command.usage),
                       Roff(command.summary));
    std::string section;
    for (const FlagInfo& flag : command.flags) {
      if (flag.section != section) out += fmt::format(".PP\n{}:\n", Roff(flag.section));
      section = flag.section;
      out += fmt::format(".TP\n.B \"{}\"\n{}\n", Roff(flag.Title()), Roff(flag.help));
    }
    if (!command.note.empty()) out += fmt::format(".PP\n{}\n", Roff(command.note));
    out += RoffExamples(command);
  }
  return out +
         ".SH EXIT STATUS\n.TP\n.B 0\nsuccess\n.TP\n.B 1\nerror in flags or input\n.TP\n.B 2\n"
         "difference found\n.TP\n.B 3\ninfeasible\n.TP\n.B 4\nfailure at run time\n";
}

}  // namespace heddle
