// heddle generate: generates text from a checkpoint.
#include "heddle/run/train/generate.h"

#include <algorithm>
#include <ostream>
#include <thread>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/train/saved_job.h"
#include "heddle/run/sample/text_coder.h"
#include "heddle/run/train/exact.h"
#include "heddle/run/train/stop_text.h"

namespace heddle {
namespace {

struct GenerateCommand {
  static constexpr const char* kName = "generate";
  static constexpr const char* kNote =
      "Reads the newest checkpoint of a folder and its job.toml, and prints the prompt and its "
      "continuation. A model that was trained on token files needs --tokenizer, or reads and "
      "prints token numbers. Tokens after the job's sequence length take longer, because every one "
      "runs the model on all positions.";
  static constexpr const char* kExamples =
      "heddle generate --checkpoint=runs/text --prompt='graph @' --tokens=200\n"
      "heddle generate --checkpoint=runs/8b --tokenizer=llama --prompt='Once upon a time' "
      "--stream\n"
      "heddle generate --checkpoint=runs/8b --prompt='Q: Why?' --temperature=0.7 --top_p=0.9 "
      "--stop='Q:'";

  std::string folder;
  std::optional<int64_t> step;
  std::string prompt = "\n";
  std::string tokenizer;
  run::GenerateOptions options = {.tokens = 100};
  int64_t seed = 0;
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  std::vector<std::string> stops;
  bool stream = false;
  bool json = false;

  void Declare(Flags& flags) {
    flags.Required("--checkpoint=FOLDER", folder, "folder of checkpoints");
    flags.Option("--step", step, "use the checkpoint of this step instead of the newest");
    flags.Option("--prompt", prompt,
                 "start of the text; for models of token files without --tokenizer, numbers "
                 "separated by commas");
    flags.Option("--tokenizer=FOLDER", tokenizer,
                 "folder with the tokenizer.json of prompt and text (default: that of the job, or "
                 "of its initial weights)");
    flags.Option("--tokens", options.tokens, "maximum number of tokens to generate", {.least = 1});
    flags.Option("--temperature", options.temperature,
                 "sampling temperature (0: always the most likely token; 1: the model's "
                 "probabilities)");
    flags.Option("--top_k", options.top_k, "sample from the K most likely tokens (0: from all)",
                 {.least = 0});
    flags.Option("--top_p", options.top_p,
                 "sample from the fewest most likely tokens whose probabilities sum to P (1: from "
                 "all); applies after --top_k");
    flags.Option("--stop=TEXT", stops,
                 "end the text before this string, which may span tokens; may be repeated");
    flags.Option("--seed", seed, "seed of the sampling", {.least = 0});
    flags.Option("--threads", threads, "threads; tokens do not depend on it",
                 {.least = 1, .most = 1024});
    flags.Switch("--stream", stream, "print the text while it is generated");
    flags.Switch("--json", json, "print tokens and text as JSON");
  }
  Result<ExitCode> Run(const Streams& streams) const;

 private:
  Result<run::TextCoder> OpenCoder(const SavedJob& job) const;
  Status Check() const;
};

Result<run::TextCoder> GenerateCommand::OpenCoder(const SavedJob& job) const {
  if (job.text && !tokenizer.empty())
    return Error(Diag::kUsage, "--tokenizer has no effect: the tokens of this model are bytes");
  const std::string& path = tokenizer.empty() ? job.tokenizer : tokenizer;
  if (path.empty() && !job.text && !stops.empty())
    return Error(Diag::kUsage, "--stop needs text; --tokenizer names a tokenizer for it");
  return run::TextCoder::Open(job.text, path, job.model->config.vocab_size);
}

// The part of a text that further tokens do not change: without characters whose bytes are not
// complete.
std::string_view Settled(std::string_view text) {
  while (text.ends_with("\uFFFD")) text.remove_suffix(3);
  return text;
}

Status GenerateCommand::Check() const {
  if (stream && json) return Error(Diag::kUsage, "--stream has no effect with --json");
  if (options.top_p <= 0 || options.top_p > 1)
    return Error(Diag::kBadChoice, "--top_p is {}; it is a probability above 0, at most 1",
                 options.top_p);
  if (std::ranges::find(stops, "") != stops.end()) return Error(Diag::kUsage, "--stop is empty");
  return Done{};
}

Result<ExitCode> GenerateCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(Check());
  run::MakeExact();
  at::set_num_threads(static_cast<int>(threads));
  HEDDLE_TRY(SavedJob job, OpenSavedJob(folder, step));
  for (const std::string& note : job.notes) streams.err << note << "\n";
  HEDDLE_TRY(run::TextCoder coder, OpenCoder(job));
  HEDDLE_TRY(std::vector<int64_t> begin, coder.Encode("--prompt", prompt));
  run::GenerateOptions how = options;
  how.seed = static_cast<uint64_t>(seed);
  how.end = coder.end();
  bool text = coder.has_text();
  run::StopText stop(stops);
  size_t shown = 0;
  if (stream && text) streams.out << prompt << std::flush;
  auto show = [&](std::span<const int64_t> made) {
    Result<std::string> decoded = coder.Decode(begin, made);
    if (!decoded.ok()) return true;
    std::string_view now = Settled(*decoded);
    std::optional<size_t> end = stop.Find(now);
    size_t settled = end ? *end : stop.Settled(now);
    if (stream && settled > shown) {
      streams.out << now.substr(shown, settled - shown) << std::flush;
      shown = settled;
    }
    return !end;
  };
  if (stream || !stops.empty()) how.on_token = show;
  Result<std::vector<int64_t>> made = run::Generate(*job.model, job.params, begin, how);
  if (!made.ok()) {
    Report(made.diagnostics(), streams);
    return ExitCode::kFault;
  }
  HEDDLE_TRY(std::string all, coder.Decode(begin, *made));
  std::optional<size_t> stopped = stop.Find(all);
  if (stopped) all.resize(*stopped);
  if (json) {
    nlohmann::ordered_json out = {{"step", job.step}, {"prompt", begin}, {"tokens", *made}};
    if (text) out["text"] = all;
    if (!stops.empty()) out["stopped"] = stopped.has_value();
    PrintJson(out, streams);
  } else if (stream) {
    streams.out << all.substr(std::min(shown, all.size())) << "\n";
  } else {
    streams.out << (text ? prompt : "") << all << "\n";
  }
  return ExitCode::kDone;
}

}  // namespace

void AddGenerate(CommandSet& commands) { commands.Add<GenerateCommand>(); }

}  // namespace heddle
