// heddle generate: generates text from a checkpoint.
#include "heddle/run/train/generate.h"

#include <algorithm>
#include <charconv>
#include <ostream>
#include <thread>

#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/train/saved_job.h"
#include "heddle/core/base/text.h"
#include "heddle/run/data/byte_tokenizer.h"
#include "heddle/run/tokenizer/tokenizer.h"
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
  using Tokenizer = std::shared_ptr<const run::Tokenizer>;
  // Null if tokens are bytes or numbers.
  Result<Tokenizer> OpenTokenizer(const SavedJob& job) const;
  Result<std::vector<int64_t>> Prompt(const SavedJob& job, const Tokenizer& tokenizer) const;
  Status Check() const;
};

// Turns tokens after a prompt into what the command prints of them.
class Continuation {
 public:
  Continuation(const run::Tokenizer* tokenizer, bool bytes, std::vector<int64_t> prompt)
      : tokenizer_(tokenizer), bytes_(bytes), prompt_(std::move(prompt)) {}

  Result<std::string> Text(std::span<const int64_t> made) const {
    if (bytes_) return run::TokensToText(made);
    if (tokenizer_ == nullptr) return fmt::format("{}", fmt::join(made, ","));
    // The first token of a text is decoded differently, so the prompt is decoded, too.
    HEDDLE_TRY(std::string before, tokenizer_->Decode(prompt_));
    std::vector<int64_t> all = prompt_;
    all.insert(all.end(), made.begin(), made.end());
    HEDDLE_TRY(std::string text, tokenizer_->Decode(all));
    size_t same = std::ranges::mismatch(before, text).in1 - before.begin();
    return run::PrintableText(std::string_view(text).substr(same));
  }
  // The part of the text that further tokens do not change: without characters whose bytes are not
  // complete.
  Result<std::string> Settled(std::span<const int64_t> made) const {
    HEDDLE_TRY(std::string text, Text(made));
    while (text.ends_with("\uFFFD")) text.resize(text.size() - 3);
    return text;
  }

 private:
  const run::Tokenizer* tokenizer_;
  bool bytes_;
  std::vector<int64_t> prompt_;
};

Result<GenerateCommand::Tokenizer> GenerateCommand::OpenTokenizer(const SavedJob& job) const {
  if (job.text && !tokenizer.empty())
    return Error(Diag::kUsage, "--tokenizer has no effect: the tokens of this model are bytes");
  std::string path = tokenizer.empty() ? job.tokenizer : tokenizer;
  if (path.empty() && !job.text && !stops.empty())
    return Error(Diag::kUsage, "--stop needs text; --tokenizer names a tokenizer for it");
  if (path.empty()) return Tokenizer();
  HEDDLE_TRY(Tokenizer opened, run::Tokenizer::Open(path));
  HEDDLE_RETURN_IF_ERROR(opened->CheckFits(job.model->config.vocab_size));
  return opened;
}

Result<std::vector<int64_t>> GenerateCommand::Prompt(const SavedJob& job,
                                                     const Tokenizer& opened) const {
  std::vector<int64_t> tokens;
  if (job.text) {
    tokens = run::BytesToTokens(prompt);
  } else if (opened != nullptr) {
    std::vector<int32_t> encoded;
    HEDDLE_RETURN_IF_ERROR(run::TextEncoder(*opened).Encode(prompt, encoded));
    tokens.assign(encoded.begin(), encoded.end());
  } else {
    for (std::string_view word : Split(prompt, ',')) {
      word = Trim(word);
      if (word.empty()) continue;
      int64_t token = 0;
      auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || end != word.data() + word.size())
        return Error(Diag::kUsage,
                     "--prompt has `{}`; expected token numbers; --tokenizer names a tokenizer for "
                     "text",
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
  HEDDLE_TRY(Tokenizer opened, OpenTokenizer(job));
  HEDDLE_TRY(std::vector<int64_t> begin, Prompt(job, opened));
  run::GenerateOptions how = options;
  how.seed = static_cast<uint64_t>(seed);
  if (job.text) how.end = run::kByteDocumentEnd;
  if (opened != nullptr && opened->document_end()) how.end = *opened->document_end();
  Continuation continuation(opened.get(), job.text, begin);
  bool text = job.text || opened != nullptr;
  run::StopText stop(stops);
  size_t shown = 0;
  if (stream && text) streams.out << prompt << std::flush;
  auto show = [&](std::span<const int64_t> made) {
    Result<std::string> now = continuation.Settled(made);
    if (!now.ok()) return true;
    std::optional<size_t> end = stop.Find(*now);
    size_t settled = end ? *end : stop.Settled(*now);
    if (stream && settled > shown) {
      streams.out << now->substr(shown, settled - shown) << std::flush;
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
  HEDDLE_TRY(std::string all, continuation.Text(*made));
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
