// Where tokens come from: the corpus that the program carries, a file, a folder.
#pragma once

#include <string>

#include "heddle/run/data/token_stream.h"

namespace heddle::run {

struct TokenSource {
  // `text`, `llm.c tokens` and so on.
  std::string kind;
  TokenStream train;
  // Of files that are meant for validation: `val.bin`, `fineweb_val_000000.bin`. Often empty.
  TokenStream held_out;
  bool is_text = false;
  // Files of a folder that are no UTF-8.
  int64_t skipped = 0;
};

// `text` or a path.
Result<TokenSource> OpenSource(const std::string& source);

// --- For source.cc

struct TokenFile {
  std::string kind;
  TokenSegment segment;
};
// Whether the name is that of a token file: `.bin`, `.idx`, `.safetensors`.
bool IsTokenFile(const std::string& path);
// nanoGPT's and llm.c's `.bin`, Megatron-LM's `.bin` with `.idx` (either is given), safetensors.
Result<TokenFile> OpenTokenFile(const std::string& path);
Result<TokenSegment> OpenMegatron(const std::string& bin_path, const std::string& idx_path);
Result<TokenSegment> OpenSafetensorsTokens(const std::string& path);

// Fails for what is no UTF-8, or holds a NUL.
Result<TokenSegment> OpenText(const std::string& path);
// The project's own sources and docs, as they were when the program was built.
TokenSegment Corpus();

}  // namespace heddle::run
