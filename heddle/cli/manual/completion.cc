// heddle completion: scripts that complete commands and flags in shells.
#include <algorithm>
#include <ostream>

#include "heddle/cli/commands.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// With `--help`, which every command has.
std::vector<CommandInfo> ShellCommands(std::vector<CommandInfo> commands) {
  for (CommandInfo& command : commands) {
    FlagInfo& help = command.flags.emplace_back();
    help.names = {"-h", "--help"};
    help.help = "print this help";
  }
  return commands;
}

// `text` inside single quotes of a POSIX shell, which zsh and fish read the same way.
std::string ShellQuoted(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + out + "'";
}

// The first clause of a help text.
std::string ShortHelp(std::string_view help) {
  size_t end = std::min({help.find("; "), help.find(": "), help.find(" (")});
  return std::string(help.substr(0, end));
}

std::string JoinedChoices(const FlagInfo& flag) {
  std::vector<std::string_view> views(flag.choices.begin(), flag.choices.end());
  return Join(views, " ");
}

std::string BashScript(const std::vector<CommandInfo>& commands) {
  std::string names;
  std::string cases;
  for (const CommandInfo& command : commands) {
    names += " " + command.name;
    std::string words;
    for (const FlagInfo& flag : command.flags) {
      std::vector<std::string_view> views(flag.names.begin(), flag.names.end());
      std::string more = flag.positional() ? JoinedChoices(flag) : Join(views, " ");
      if (!more.empty()) words += (words.empty() ? "" : " ") + more;
    }
    cases += fmt::format("    {}) words='{}' ;;\n", command.name, words);
  }
  return fmt::format(
      "# bash completion of heddle, made by `heddle completion bash`\n"
      "_heddle() {{\n"
      "  local words='' at=1\n"
      "  [ \"${{COMP_WORDS[1]}}\" = help ] && at=2\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}"
      "  esac\n"
      "  if [ \"$COMP_CWORD\" -le \"$at\" ]; then\n"
      "    words='help{} --help --version'\n"
      "  fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "}}\n"
      "complete -o default -F _heddle heddle\n",
      cases, names);
}

// An entry of zsh's _arguments.
std::string ZshArgument(const FlagInfo& flag) {
  auto escaped = [](std::string_view text) {
    std::string out;
    for (char c : text)
      out += c == '[' || c == ']' || c == ':' ? fmt::format("\\{}", c) : std::string(1, c);
    return out;
  };
  std::string action = flag.choices.empty() ? "_files" : fmt::format("({})", JoinedChoices(flag));
  if (flag.positional()) return ShellQuoted(fmt::format(":{}:{}", flag.names[0], action));
  std::string out;
  for (const std::string& name : flag.names) {
    std::string value;
    if (!flag.value.empty()) value = fmt::format(":{}:{}", flag.value, action);
    bool assigned = !flag.value.empty() && name.starts_with("--");
    out += fmt::format("{}{}", out.empty() ? "" : " ",
                       ShellQuoted(fmt::format("{}{}[{}]{}", name, assigned ? "=" : "",
                                               escaped(ShortHelp(flag.help)), value)));
  }
  return out;
}

std::string ZshScript(const std::vector<CommandInfo>& commands) {
  std::string names;
  std::string cases;
  for (const CommandInfo& command : commands) {
    names += fmt::format(
        "    {}\n", ShellQuoted(fmt::format("{}:{}", command.name, ShortHelp(command.summary))));
    cases += fmt::format("    {})\n      _arguments \\\n", command.name);
    for (const FlagInfo& flag : command.flags)
      cases += fmt::format("        {} \\\n", ZshArgument(flag));
    cases += "        && return\n      ;;\n";
  }
  return fmt::format(
      "#compdef heddle\n# zsh completion of heddle, made by `heddle completion zsh`\n"
      "_heddle() {{\n"
      "  local -a commands=(\n    'help:describe a command'\n{}  )\n"
      "  if (( CURRENT == 2 )) || [[ $words[2] == help ]]; then\n"
      "    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n  (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _heddle ]; then _heddle \"$@\"; else compdef _heddle heddle; fi\n",
      names, cases);
}

std::string FishScript(const std::vector<CommandInfo>& commands) {
  std::string out = "# fish completion of heddle, made by `heddle completion fish`\n";
  out += "complete -c heddle -n __fish_use_subcommand -f -a help -d 'describe a command'\n";
  for (const CommandInfo& command : commands) {
    out += fmt::format("complete -c heddle -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                       ShellQuoted(ShortHelp(command.summary)));
    std::string when =
        fmt::format("complete -c heddle -n '__fish_seen_subcommand_from {}'", command.name);
    for (const FlagInfo& flag : command.flags) {
      if (flag.positional()) {
        if (!flag.choices.empty())
          out += fmt::format("{} -f -a {}\n", when, ShellQuoted(JoinedChoices(flag)));
        continue;
      }
      std::string names;
      for (const std::string& name : flag.names)
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      std::string value = flag.value.empty()     ? ""
                          : flag.choices.empty() ? " -r"
                                                 : " -x -a " + ShellQuoted(JoinedChoices(flag));
      out += fmt::format("{}{}{} -d {}\n", when, names, value, ShellQuoted(ShortHelp(flag.help)));
    }
  }
  return out;
}

struct CompletionCommand {
  static constexpr const char* kName = "completion";
  static constexpr const char* kSummary = "Print the completion script of a shell";
  static constexpr const char* kNote =
      "`cmake --install` installs the scripts where shells look for them.";
  static constexpr const char* kExamples =
      "source <(heddle completion bash)\n"
      "heddle completion zsh > ~/.zfunc/_heddle\n"
      "heddle completion fish > ~/.config/fish/completions/heddle.fish";

  explicit CompletionCommand(const CommandSet& all) : commands(all) {}

  const CommandSet& commands;
  std::string shell;

  void Declare(Flags& flags) {
    flags.Positional("SHELL", shell, "bash, zsh or fish", {"bash", "zsh", "fish"});
  }
  Status Run(const Streams& streams) const {
    std::vector<CommandInfo> all = ShellCommands(commands.Describe());
    streams.out << (shell == "bash"  ? BashScript(all)
                    : shell == "zsh" ? ZshScript(all)
                                     : FishScript(all));
    return Done{};
  }
};

}  // namespace

void AddCompletion(CommandSet& commands) { commands.Add<CompletionCommand>(commands); }

}  // namespace heddle
