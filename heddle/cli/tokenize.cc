// heddle tokenize: text as token files.
#include "heddle/run/data/tokenize.h"

#include <ostream>
#include <thread>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/core/base/text.h"
#include "heddle/run/data/token_writer.h"
#include "heddle/run/metrics/progress.h"

namespace heddle {
namespace {

struct TokenizeCommand {
  static constexpr const char* kName = "tokenize";
  static constexpr const char* kSummary = "Turn text into token files to train on";
  static constexpr const char* kNote =
      "Reads text files, JSONL files (.jsonl) and folders of them. Writes a folder that `heddle "
      "train --training.dataset=FOLDER` reads. A text file is a document, and so is each line of "
      "JSONL. Lines with a prompt and a completion train the completion only. In folders, files "
      "that are not text are skipped. Another program can pass texts as JSONL to standard input.";
  static constexpr const char* kExamples =
      "heddle tokenize --tokenizer=llama/ corpus/ -o tokens\n"
      "heddle tokenize --tokenizer=llama/ a.jsonl b.jsonl --key=content -o tokens\n"
      "heddle tokenize --tokenizer=llama/ pairs.jsonl --prompt=question --completion=answer -o "
      "tokens\n"
      "heddle tokenize --tokenizer=llama/ - -o tokens < <(zstdcat a.jsonl.zst)";

  std::string tokenizer;
  std::vector<std::string> inputs;
  std::string folder;
  std::string document_end;
  run::TokenizeOptions options = {.threads =
                                      std::max<int64_t>(1, std::thread::hardware_concurrency())};
  bool json = false;

  void Declare(Flags& flags);
  bool piped() const { return std::ranges::find(inputs, "-") != inputs.end(); }
  Result<run::DocumentFiles> ListInputs() const;
  Result<ExitCode> Run(const Streams& streams) const;
};

void TokenizeCommand::Declare(Flags& flags) {
  flags.Positional("INPUT", inputs,
                   "text file, JSONL file or folder; - for JSONL from standard input");
  flags.Required("--tokenizer=FOLDER", tokenizer,
                 "folder with a tokenizer.json, as Hugging Face has it");
  flags.Required("-o,--output=FOLDER", folder, "folder to create");
  flags.Option("--key", options.keys.text, "name of the text in a line of JSONL");
  flags.Option("--prompt", options.keys.prompt,
               "name of the prompt in a line of JSONL; its tokens do not count towards the loss");
  flags.Option("--completion", options.keys.completion,
               "name of the completion in a line of JSONL");
  flags.Option("--document_end=TOKEN", document_end,
               "token to append to each document (default: eos_token of tokenizer_config.json, if "
               "there is one)");
  flags.Option("--threads", options.threads, "threads; tokens do not depend on it",
               {.least = 1, .most = 1024});
  flags.Switch("--json", json, "print JSON");
}

Result<run::DocumentFiles> TokenizeCommand::ListInputs() const {
  if (!piped()) return run::ListDocuments(inputs, options.keys);
  if (inputs.size() > 1)
    return Error(Diag::kUsage,
                 "`-`, standard input, is one of {} inputs, expected to be the only one",
                 inputs.size());
  run::DocumentFiles documents;
  documents.files = 1;
  return documents;
}

Result<ExitCode> TokenizeCommand::Run(const Streams& streams) const {
  HEDDLE_TRY(std::shared_ptr<const run::Tokenizer> opened, run::Tokenizer::Open(tokenizer));
  run::TokenizeOptions how = options;
  how.document_end = opened->document_end();
  if (!document_end.empty()) {
    how.document_end = opened->Find(document_end);
    if (!how.document_end)
      return Error(Diag::kTokenizer, "--document_end is `{}`, which is not a token of {}",
                   document_end, opened->file());
  }
  HEDDLE_TRY(run::DocumentFiles documents, ListInputs());
  HEDDLE_TRY(run::TokenWriter writer,
             run::TokenWriter::Create(folder, opened->vocab(), documents.has_pairs));
  run::Progress progress(streams.err, "MB", documents.bytes / 1'000'000);
  // The size of a pipe is not known.
  if (!piped()) how.progress = [&](int64_t bytes) { progress.Show(bytes / 1'000'000); };
  auto write = [&](const run::DocumentTokens& done) {
    return writer.Add(done.tokens, done.lengths, done.mask);
  };
  HEDDLE_RETURN_IF_ERROR(
      piped() ? run::TokenizeDocuments(*opened, run::StandardInputParts(), how, write)
              : run::TokenizeDocuments(*opened, documents, how, write));
  progress.Clear();
  if (writer.tokens() == 0) return Error(Diag::kData, "the inputs have no text");
  HEDDLE_RETURN_IF_ERROR(writer.Finish());
  if (json) {
    PrintJson({{"documents", writer.documents()},
               {"tokens", writer.tokens()},
               {"counted", writer.counted()},
               {"files", documents.files},
               {"skipped", documents.skipped},
               {"vocabulary", opened->vocab()}},
              streams);
    return ExitCode::kDone;
  }
  streams.out << fmt::format(
      "{} tokens{} of {} in {}, to {}{}\n", WithCommas(writer.tokens()),
      documents.has_pairs
          ? fmt::format(" ({} count towards the loss)", WithCommas(writer.counted()))
          : "",
      Counted(writer.documents(), "document"), Counted(documents.files, "file"), folder,
      documents.skipped == 0 ? "" : fmt::format("; {} not text (skipped)", documents.skipped));
  if (!how.document_end)
    streams.err << "documents have no end token, because tokenizer_config.json names none; "
                   "--document_end sets one\n";
  return ExitCode::kDone;
}

}  // namespace

void AddTokenize(CommandSet& commands) { commands.Add<TokenizeCommand>(); }

}  // namespace heddle
