// Text, with one token per byte.
#include "heddle/core/base/utf8.h"
#include "heddle/run/data/byte_tokenizer.h"
#include "heddle/run/data/source.h"

// The corpus: every file that CMakeLists.txt lists, each followed by the end of a document.
asm(".pushsection .rodata\n"
    "heddle_corpus_begin:\n"
#include "heddle/run/data/corpus.inc"
    "heddle_corpus_end:\n"
    ".popsection\n");
extern "C" {
extern const char heddle_corpus_begin[] __attribute__((visibility("hidden")));
extern const char heddle_corpus_end[] __attribute__((visibility("hidden")));
}

namespace heddle::run {

Status CheckNotParquet(const std::string& path) {
  if (!path.ends_with(".parquet")) return Done{};
  return Error(Diag::kData,
               "`{}` is a Parquet file, which the Python package turns into tokens: `python -m "
               "heddle tokenize --tokenizer=FOLDER {} -o tokens`",
               path, path);
}

Result<TokenSegment> OpenText(const std::string& path) {
  HEDDLE_TRY(auto file, MappedFile::Open(path));
  std::string_view text = file->bytes();
  size_t bad = FirstNotUtf8(text);
  if (bad < text.size())
    return Error(Diag::kData,
                 "`{}` is not text: byte {} is not UTF-8; files of tokens are named "
                 ".bin, .idx or .safetensors",
                 path, bad);
  size_t nul = text.find('\0');
  if (nul != std::string_view::npos)
    return Error(Diag::kData, "`{}` is not text: byte {} is NUL, which ends documents", path, nul);
  TokenSegment segment;
  segment.name = path;
  segment.file = std::move(file);
  segment.bytes = text;
  if (!text.empty()) segment.closing = kByteDocumentEnd;
  segment.document_end = kByteDocumentEnd;
  return segment;
}

TokenSegment Corpus() {
  TokenSegment segment;
  segment.name = "text";
  segment.bytes = {heddle_corpus_begin,
                   static_cast<size_t>(heddle_corpus_end - heddle_corpus_begin)};
  segment.document_end = kByteDocumentEnd;
  return segment;
}

}  // namespace heddle::run
