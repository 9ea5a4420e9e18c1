// heddle-attack: damages valid graphs and plans, runs every command on them, and reports failures.
//
// A child process does the work, in its own directory, with limits of time and memory. It reports
// each command before and after. If it dies, the command in progress is the cause.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <fmt/core.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "test/attack/finding.h"
#include "test/attack/judge.h"

namespace heddle {
namespace {

// Inputs per child: starting a child takes longer than a command.
constexpr uint64_t kInputsPerChild = 200;
constexpr double kMinimizingSeconds = 30;
constexpr char kSeparator = '\x1f';

struct Options {
  uint64_t seed = 1;
  double seconds = 60;
  // Maximum number of inputs. A limit by count makes a test run the same inputs on slow and fast
  // machines.
  uint64_t graphs = UINT64_MAX;
  // Folder for findings.
  std::string found = "attack-found";
  size_t most_findings = 20;
  std::vector<std::string> paths;
};

class Attack {
 public:
  Attack(const Corpus& corpus, const Options& options) : corpus_(corpus), options_(options) {}

  // Returns whether nothing was found.
  bool Run() {
    while (!IsOver(number_) && found_.size() < options_.most_findings) {
      command_.clear();
      std::string death = Watch(
          directory_.path(), limits_, [this](const Reporter& report) { Work(report); },
          [this](std::string_view line) { Hear(line); });
      if (!death.empty()) Note(death);
      ++number_;
    }
    fmt::print("{} graphs, {} accepted, {} commands, {} findings (seed {})\n",
               WithCommas(static_cast<int64_t>(number_)), WithCommas(accepted_),
               WithCommas(commands_), found_.size(), options_.seed);
    return found_.empty();
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool IsOver(uint64_t number) const {
    return number >= options_.graphs ||
           std::chrono::duration<double>(Clock::now() - began_).count() > options_.seconds;
  }

  // Runs in the child. The first letter of a line is its kind: the number of an input, an accepted
  // input, the start of a command, or its end.
  void Work(const Reporter& report) const {
    for (uint64_t n = number_; n < number_ + kInputsPerChild && !IsOver(n); ++n) {
      report(fmt::format("n{}", n));
      bool accepted = AttackWith(corpus_, options_.seed, n, [&](const Args& args) {
        std::vector<std::string_view> words(args.begin(), args.end());
        report("b" + Join(words, std::string_view(&kSeparator, 1)));
        bool took_it = false;
        std::string fault = Judge(args, took_it);
        report("e" + fault);
        return took_it;
      });
      if (accepted) report("a");
    }
  }

  void Hear(std::string_view line) {
    std::string_view rest = line.substr(1);
    switch (line[0]) {
      case 'n': number_ = std::strtoull(std::string(rest).c_str(), nullptr, 10); break;
      case 'a': ++accepted_; break;
      case 'b':
        ++commands_;
        command_.clear();
        for (std::string_view word : Split(rest, kSeparator)) command_.emplace_back(word);
        break;
      default:
        if (!rest.empty()) Note(std::string(rest));
    }
  }

  void Note(const std::string& fault) {
    if (found_.size() >= options_.most_findings || !found_.insert(Signature(fault)).second) return;
    Found finding;
    finding.args = command_;
    finding.fault = fault;
    for (const char* name : {kGraphFile, kOriginalFile, kPlanFile, kProblemFile, kPlannedFile}) {
      bool read = std::ranges::any_of(
          command_, [&](const std::string& arg) { return arg.find(name) != std::string::npos; });
      Result<std::string> text = ReadFile(fmt::format("{}/{}", directory_.path(), name));
      if (read && text.ok()) finding.files[name] = *text;
    }
    // A finding that depends on earlier commands is reported without shrinking.
    bool repeats = Signature(RunAlone(finding.args, finding.files, limits_)) == Signature(fault);
    if (repeats) finding = Minimize(std::move(finding), limits_, kMinimizingSeconds);
    std::string place = fmt::format("{}/{}-{}", options_.found, options_.seed, number_);
    Status written = WriteFinding(finding, place);
    fmt::print("FOUND {}: {}{}\n", place, finding.fault, repeats ? "" : " (not alone)");
    if (!written.ok()) fmt::print("{}", Format(written.diagnostics()));
    std::fflush(stdout);
  }

  const Corpus& corpus_;
  const Options& options_;
  Limits limits_;
  TempDir directory_;
  Clock::time_point began_ = Clock::now();
  uint64_t number_ = 0;
  int64_t accepted_ = 0;
  int64_t commands_ = 0;
  Args command_;
  std::set<std::string> found_;
};

// Removes `--name=` from an argument.
bool TakeFlag(std::string_view arg, std::string_view name, std::string& value) {
  if (!arg.starts_with(name)) return false;
  value = arg.substr(name.size());
  return true;
}

int Main(const std::vector<std::string>& args) {
  Options options;
  for (const std::string& arg : args) {
    std::string value;
    if (TakeFlag(arg, "--seconds=", value)) {
      options.seconds = std::strtod(value.c_str(), nullptr);
    } else if (TakeFlag(arg, "--graphs=", value)) {
      options.graphs = std::strtoull(value.c_str(), nullptr, 10);
    } else if (TakeFlag(arg, "--seed=", value)) {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (TakeFlag(arg, "--found=", options.found)) {
    } else if (TakeFlag(arg, "--most=", value)) {
      options.most_findings = std::strtoull(value.c_str(), nullptr, 10);
    } else if (arg.starts_with('-')) {
      fmt::print(
          "usage: heddle-attack [--seconds=N] [--graphs=N] [--seed=N] [--found=DIRECTORY] "
          "[--most=N] "
          "FILE.hdt|FILE.hd|FILE.plan...\n");
      return arg == "--help" ? 0 : 1;
    } else {
      options.paths.push_back(arg);
    }
  }
  // Independent of the order in which a shell lists files.
  std::ranges::sort(options.paths);
  Result<Corpus> corpus = ReadCorpus(options.paths);
  if (!corpus.ok()) {
    fmt::print(stderr, "{}", Format(corpus.diagnostics()));
    return 1;
  }
  fmt::print("{} graphs and {} plans to begin with\n", corpus->seeds.size(), corpus->plans.size());
  return Attack(*corpus, options).Run() ? 0 : 1;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  return heddle::Main(std::vector<std::string>(argv + 1, argv + argc));
}
