#include "heddle/cli/flags.h"

#include <algorithm>
#include <ostream>

#include <CLI/CLI.hpp>

#include "heddle/base/text.h"

namespace heddle {

struct CommandSet::State {
  CLI::App app{"Heddle: a graph compiler for distributed training", "heddle"};
  std::function<ExitCode(const Streams&)> chosen;
};

void Flags::Positional(const std::string& name, std::string& target, const std::string& help,
                       std::vector<std::string> choices) {
  CLI::Option* option = app_.add_option(name, target, help)->required();
  if (!choices.empty()) option->check(CLI::IsMember(std::move(choices)));
}

void Flags::Switch(const std::string& name, bool& target, const std::string& help) {
  app_.add_flag(name, target, help);
}

void Flags::Option(const std::string& name, std::string& target, const std::string& help,
                   bool required) {
  CLI::Option* option = app_.add_option(name, target, help)->required(required);
  if (!target.empty()) option->capture_default_str();
}

void Flags::Option(const std::string& name, int64_t& target, const std::string& help,
                   std::optional<int64_t> least) {
  CLI::Option* option = app_.add_option(name, target, help)->type_name("INT");
  if (least) option->check(CLI::Range(*least, INT64_MAX));
  // Below the range: no default to show.
  if (!least || target >= *least) option->capture_default_str();
}

void Flags::Option(const std::string& name, std::optional<int64_t>& target,
                   const std::string& help) {
  app_.add_option(name, target, help)->type_name("INT");
}

CommandSet::CommandSet() : state_(std::make_unique<State>()) {
  CLI::App& app = state_->app;
  app.set_version_flag("--version", "heddle " HEDDLE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "`heddle COMMAND --help` describes a command.\n"
      "Exit codes: 0 done, 1 the user's mistake, 2 a verification differed, 3 infeasible, 4 a "
      "fault at run time.");
}

CommandSet::~CommandSet() = default;

CLI::App& CommandSet::AddApp(const char* name, const char* summary, const char* note,
                             std::function<ExitCode(const Streams&)> run) {
  CLI::App* sub = state_->app.add_subcommand(name, summary);
  sub->footer(note);
  State* state = state_.get();
  sub->callback([state, run = std::move(run)] { state->chosen = run; });
  return *sub;
}

void CommandSet::AddListed(const char* name, const char* summary) {
  AddApp(name, summary, "", [](const Streams& streams) {
    streams.err << "this command is run by heddle-torch\n";
    return ExitCode::kFault;
  });
}

ExitCode CommandSet::Run(std::vector<std::string> args, const Streams& streams) {
  std::vector<std::string> names;
  for (const CLI::App* sub : state_->app.get_subcommands({})) names.push_back(sub->get_name());
  if (!args.empty() && !args[0].starts_with('-') &&
      std::ranges::find(names, args[0]) == names.end()) {
    std::vector<std::string_view> views(names.begin(), names.end());
    streams.err << Format(MakeDiagnostic(Diag::kUnknownFlag, "unknown command `{}`{}", args[0],
                                         NearestHint(args[0], views)));
    return ExitCode::kUserMistake;
  }
  std::reverse(args.begin(), args.end());
  try {
    state_->app.parse(args);
  } catch (const CLI::ExtrasError& error) {
    // The usual cause is a slip: name what was meant.
    std::vector<std::string> known;
    for (const CLI::App* sub : state_->app.get_subcommands()) {
      for (const CLI::Option* option : sub->get_options()) {
        if (!option->get_lnames().empty()) known.push_back("--" + option->get_lnames()[0]);
      }
    }
    std::vector<std::string_view> views(known.begin(), known.end());
    for (std::string extra : state_->app.remaining(true)) {
      extra = extra.substr(0, extra.find('='));
      streams.err << Format(MakeDiagnostic(Diag::kUnknownFlag, "unknown argument `{}`{}", extra,
                                           NearestHint(extra, views)));
    }
    return ExitCode::kUserMistake;
  } catch (const CLI::ParseError& error) {
    int code = state_->app.exit(error, streams.out, streams.err);
    return code == 0 ? ExitCode::kDone : ExitCode::kUserMistake;
  }
  return state_->chosen(streams);
}

}  // namespace heddle
