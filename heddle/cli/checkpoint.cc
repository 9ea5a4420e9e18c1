// heddle checkpoint: lists the checkpoints of a folder, and verifies their hashes.
#include "heddle/run/checkpoint/checkpoint.h"

#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

struct CheckpointCommand {
  static constexpr const char* kName = "checkpoint";
  static constexpr const char* kSummary =
      "List the checkpoints of a folder, show one, or verify their hashes";
  static constexpr const char* kNote =
      "`ls` reads manifests and file sizes, `show` lists the tensors of one checkpoint, and "
      "`verify` "
      "reads every byte. Exit code 2: a checkpoint is damaged.";
  static constexpr const char* kExamples =
      "heddle checkpoint ls runs/8b\n"
      "heddle checkpoint verify runs/8b --step=1000";

  std::string action;
  std::string folder;
  std::optional<int64_t> step;
  bool json = false;

  void Declare(Flags& flags);
  Result<ExitCode> Run(const Streams& streams) const;
  ExitCode List(const Streams& streams, const std::vector<run::ListedCheckpoint>& list) const;
  Status Show(const Streams& streams) const;
};

void CheckpointCommand::Declare(Flags& flags) {
  flags.Positional("ACTION", action, "ls, show or verify", {"ls", "show", "verify"});
  flags.Positional("FOLDER", folder, "folder that a run saves its checkpoints to");
  flags.Option(
      "--step", step,
      "only the checkpoint of this step (default: all; for show: the newest complete one)");
  flags.Switch("--json", json, "print JSON; sizes in bytes");
}

// The message without its kind.
std::string ProblemText(const Diagnostics& problem) {
  std::vector<std::string> lines;
  for (const Diagnostic& d : problem)
    lines.push_back(d.file.empty() ? d.message : d.file + ": " + d.message);
  std::vector<std::string_view> views(lines.begin(), lines.end());
  return Join(views, "; ");
}

Json ListedJson(const run::ListedCheckpoint& listed) {
  Json entry{{"step", listed.step}, {"path", listed.path}, {"whole", listed.problem.empty()}};
  if (listed.checkpoint)
    entry.update({{"ranks", listed.checkpoint->world()},
                  {"tensors", listed.checkpoint->tensors().size()},
                  {"bytes", listed.checkpoint->bytes().value}});
  if (!listed.problem.empty()) entry["problem"] = ProblemText(listed.problem);
  return entry;
}

ExitCode CheckpointCommand::List(const Streams& streams,
                                 const std::vector<run::ListedCheckpoint>& list) const {
  Diagnostics problems;
  Json entries = Json::array();
  TextTable table({"step>", "ranks>", "tensors>", "size>", "state"});
  for (const run::ListedCheckpoint& listed : list) {
    problems.insert(problems.end(), listed.problem.begin(), listed.problem.end());
    entries.push_back(ListedJson(listed));
    std::string state = listed.problem.empty() ? "whole" : "damaged";
    if (listed.checkpoint) {
      const run::Checkpoint& checkpoint = *listed.checkpoint;
      table.AddRow({std::to_string(listed.step), std::to_string(checkpoint.world()),
                    std::to_string(checkpoint.tensors().size()), Format(checkpoint.bytes()),
                    state});
    } else {
      table.AddRow({std::to_string(listed.step), "-", "-", "-", state});
    }
  }
  if (json)
    PrintJson(entries, streams);
  else
    streams.out << table.Format();
  if (problems.empty()) return ExitCode::kDone;
  streams.err << Format(problems);
  return ExitCode::kDiffers;
}

Status CheckpointCommand::Show(const Streams& streams) const {
  HEDDLE_TRY(std::optional<run::Checkpoint> found,
             run::OpenCheckpoint(folder, {.step = step, .newest = {}}));
  const run::Checkpoint& checkpoint = *found;
  for (const std::string& note : checkpoint.notes()) streams.err << note << "\n";
  if (json) {
    Json tensors = Json::array();
    for (const run::TensorInfo& tensor : checkpoint.tensors())
      tensors.push_back({{"name", tensor.name},
                         {"dtype", Name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"pieces", checkpoint.PieceCount(tensor.name)}});
    PrintJson({{"step", checkpoint.step()},
               {"path", checkpoint.path()},
               {"ranks", checkpoint.world()},
               {"bytes", checkpoint.bytes().value},
               {"state", Json::parse(checkpoint.state())},
               {"tensors", std::move(tensors)}},
              streams);
    return Done{};
  }
  streams.out << fmt::format("{}: step {}, {}, {} in {}\nstate {}\n\n", checkpoint.path(),
                             checkpoint.step(), Counted(checkpoint.world(), "rank"),
                             Format(checkpoint.bytes()),
                             Counted(checkpoint.tensors().size(), "tensor"), checkpoint.state());
  TextTable table({"tensor", "type", "shape", "pieces>"});
  for (const run::TensorInfo& tensor : checkpoint.tensors())
    table.AddRow({tensor.name, std::string(Name(tensor.dtype)), run::FormatSizes(tensor.shape),
                  std::to_string(checkpoint.PieceCount(tensor.name))});
  streams.out << table.Format();
  return Done{};
}

Result<ExitCode> CheckpointCommand::Run(const Streams& streams) const {
  HEDDLE_TRY(std::vector<run::ListedCheckpoint> list, run::ListCheckpoints(folder));
  if (step) std::erase_if(list, [&](const run::ListedCheckpoint& c) { return c.step != *step; });
  if (list.empty()) {
    Diagnostic none = MakeDiagnostic(Diag::kCheckpoint, "has no checkpoint{}",
                                     step ? fmt::format(" of step {}", *step) : "");
    none.file = folder;
    return Failure{{none}};
  }
  if (action == "show") {
    HEDDLE_RETURN_IF_ERROR(Show(streams));
    return ExitCode::kDone;
  }
  for (run::ListedCheckpoint& listed : list) {
    if (action == "verify" && listed.checkpoint)
      listed.problem = run::VerifyCheckpoint(*listed.checkpoint).diagnostics();
  }
  return List(streams, list);
}

}  // namespace

void AddCheckpoint(CommandSet& commands) { commands.Add<CheckpointCommand>(); }

}  // namespace heddle
