// Sources of tokens: the built-in corpus, a file, or a folder.
#pragma once

#include <string>

#include "heddle/run/data/token_stream.h"
#include "heddle/run/tokenizer/tokenizer.h"

namespace heddle::run {

struct TokenSource {
  // A description such as `text` or `llm.c tokens`.
  std::string kind;
  TokenStream train;
  // Tokens of validation files, such as `val.bin` or `fineweb_val_000000.bin`. Often empty.
  TokenStream held_out;
  bool is_text = false;
  // Number of files in the folder that are not UTF-8.
  int64_t skipped = 0;
  // Hash of the tokenizer that made tokens of a text; empty if there was none.
  std::string tokenizer;

  bool has_mask() const { return train.has_mask() || held_out.has_mask(); }
};

// Opens `text` or a path.
Result<TokenSource> OpenSource(const std::string& source);

// Opens text files, JSONL files or a folder of them, and turns them into tokens in a
// temporary file.
Result<TokenSource> OpenEncodedText(const std::string& source, const Tokenizer& tokenizer);

// --- For source.cc

struct TokenFile {
  std::string kind;
  TokenSegment segment;
};
// Whether the name is that of a token file: `.bin`, `.idx` or `.safetensors`.
bool IsTokenFile(const std::string& path);
// Opens a `.bin` of nanoGPT or llm.c, a pair `.bin` and `.idx` of Megatron-LM by either name, or a
// safetensors file.
Result<TokenFile> OpenTokenFile(const std::string& path);
Result<TokenSegment> OpenMegatron(const std::string& bin_path, const std::string& idx_path);
Result<TokenSegment> OpenSafetensorsTokens(const std::string& path);
// Sets the ends of documents in a segment: one past the last token of each, in rising order.
void SetDocuments(std::vector<int64_t> ends, TokenSegment& segment);

// Fails for the name of a Parquet file, with the command that reads it.
Status CheckNotParquet(const std::string& path);
// Fails if the file is not UTF-8 or contains a NUL.
Result<TokenSegment> OpenText(const std::string& path);
// Returns the project's own sources and docs, as they were when the program was built.
TokenSegment Corpus();

}  // namespace heddle::run
