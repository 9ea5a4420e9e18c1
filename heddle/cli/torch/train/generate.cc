// heddle generate: generates text from a checkpoint.
#include "heddle/run/train/generate.h"

#include <charconv>
#include <ostream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/train/saved_job.h"
#include "heddle/core/base/text.h"
#include "heddle/run/data/byte_tokenizer.h"
#include "heddle/run/train/exact.h"

namespace heddle {
namespace {

struct GenerateCommand {
  static constexpr const char* kName = "generate";
  static constexpr const char* kNote =
      "Reads the newest checkpoint of a folder and its job.toml, and prints the prompt and its "
      "continuation. A model that was trained on token files reads and prints token numbers.";
  static constexpr const char* kExamples =
      "heddle generate --checkpoint=runs/text --prompt='graph @' --tokens=200";

  std::string folder;
  std::optional<int64_t> step;
  std::string prompt = "\n";
  run::GenerateOptions options = {.tokens = 100};
  int64_t seed = 0;
  bool json = false;

  void Declare(Flags& flags) {
    flags.Required("--checkpoint=FOLDER", folder, "folder of checkpoints");
    flags.Option("--step", step, "use the checkpoint of this step instead of the newest");
    flags.Option("--prompt", prompt,
                 "start of the text; for models of token files, numbers separated by commas");
    flags.Option("--tokens", options.tokens, "maximum number of tokens to generate", {.least = 1});
    flags.Option("--temperature", options.temperature,
                 "sampling temperature (0: always the most likely token; 1: the model's "
                 "probabilities)");
    flags.Option("--top_k", options.top_k, "sample from the K most likely tokens (0: from all)",
                 {.least = 0});
    flags.Option("--seed", seed, "seed of the sampling", {.least = 0});
    flags.Switch("--json", json, "print tokens and text as JSON");
  }
  Result<ExitCode> Run(const Streams& streams) const;

 private:
  Result<std::vector<int64_t>> Prompt(const SavedJob& job) const;
};

Result<std::vector<int64_t>> GenerateCommand::Prompt(const SavedJob& job) const {
  std::vector<int64_t> tokens;
  if (job.text) {
    tokens = run::BytesToTokens(prompt);
  } else {
    for (std::string_view word : Split(prompt, ',')) {
      word = Trim(word);
      if (word.empty()) continue;
      int64_t token = 0;
      auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || end != word.data() + word.size())
        return Error(Diag::kUsage,
                     "--prompt has `{}`; expected token numbers, because the model was trained on "
                     "a token file",
                     word);
      tokens.push_back(token);
    }
  }
  if (tokens.empty()) return Error(Diag::kUsage, "--prompt is empty");
  for (int64_t token : tokens) {
    if (token < 0 || token >= job.model->config.vocab_size)
      return Error(Diag::kUsage, "--prompt has token {}, but the vocabulary has {}", token,
                   job.model->config.vocab_size);
  }
  return tokens;
}

Result<ExitCode> GenerateCommand::Run(const Streams& streams) const {
  run::MakeExact();
  HEDDLE_TRY(SavedJob job, OpenSavedJob(folder, step));
  for (const std::string& note : job.notes) streams.err << note << "\n";
  HEDDLE_TRY(std::vector<int64_t> begin, Prompt(job));
  run::GenerateOptions how = options;
  how.seed = static_cast<uint64_t>(seed);
  if (job.text) how.end = run::kByteDocumentEnd;
  Result<std::vector<int64_t>> made = run::Generate(*job.model, job.params, begin, how);
  if (!made.ok()) {
    Report(made.diagnostics(), streams);
    return ExitCode::kFault;
  }
  if (json) {
    nlohmann::ordered_json out = {{"step", job.step}, {"prompt", begin}, {"tokens", *made}};
    if (job.text) out["text"] = run::TokensToText(*made);
    PrintJson(out, streams);
  } else if (job.text) {
    streams.out << prompt << run::TokensToText(*made) << "\n";
  } else {
    streams.out << fmt::format("{}\n", fmt::join(*made, ","));
  }
  return ExitCode::kDone;
}

}  // namespace

void AddGenerate(CommandSet& commands) { commands.Add<GenerateCommand>(); }

}  // namespace heddle
