// Text that a tokenizer turns into tokens when it is opened. Memory has the pages in use only: the
// tokens are in temporary files.
#include <algorithm>
#include <span>
#include <thread>

#include "heddle/run/data/source.h"
#include "heddle/run/data/spool.h"
#include "heddle/run/data/tokenize.h"

namespace heddle::run {
namespace {

// One past the last token of each document.
std::span<const int64_t> EndsIn(const MappedFile& file) {
  std::string_view bytes = file.bytes();
  return {reinterpret_cast<const int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)};
}

// The last token of the document that `token` is in.
int64_t LastOfDocument(const MappedFile& file, int64_t token) {
  std::span<const int64_t> ends = EndsIn(file);
  auto end = std::ranges::upper_bound(ends, token);
  return end == ends.end() ? INT64_MAX : *end - 1;
}

}  // namespace

Result<TokenSource> OpenEncodedText(const std::string& source, const Tokenizer& tokenizer) {
  if (source == "text" || source == "synthetic")
    return Error(Diag::kTokenizer,
                 "--training.dataset={} has no text for --tokenizer; name a file or folder of text",
                 source);
  HEDDLE_TRY(DocumentFiles documents, ListDocuments({source}));
  TokenizeOptions options;
  options.document_end = tokenizer.document_end();
  options.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  HEDDLE_TRY(Spool tokens, Spool::Create());
  HEDDLE_TRY(Spool ends, Spool::Create());
  HEDDLE_TRY(Spool mask, Spool::Create());
  int64_t end = 0;
  HEDDLE_RETURN_IF_ERROR(
      TokenizeDocuments(tokenizer, documents, options, [&](const DocumentTokens& done) -> Status {
        for (uint32_t length : done.lengths) {
          end += length;
          HEDDLE_RETURN_IF_ERROR(ends.Append({reinterpret_cast<const char*>(&end), sizeof end}));
        }
        HEDDLE_RETURN_IF_ERROR(
            mask.Append({reinterpret_cast<const char*>(done.mask.data()), done.mask.size()}));
        return tokens.Append({reinterpret_cast<const char*>(done.tokens.data()),
                              done.tokens.size() * sizeof(int32_t)});
      }));
  TokenSegment segment;
  segment.name = source;
  HEDDLE_TRY(segment.file, std::move(tokens).Map());
  HEDDLE_TRY(std::shared_ptr<const MappedFile> mapped_ends, std::move(ends).Map());
  segment.bytes = segment.file->bytes();
  segment.type = TokenType::kI32;
  HEDDLE_TRY(segment.mask_file, std::move(mask).Map());
  segment.mask = segment.mask_file->bytes();
  segment.document_last = [mapped_ends](int64_t token) {
    return LastOfDocument(*mapped_ends, token);
  };
  TokenSource out;
  out.kind = "text, encoded";
  out.train.Add(std::move(segment));
  out.skipped = documents.skipped;
  out.tokenizer = Format(tokenizer.hash());
  return out;
}

}  // namespace heddle::run
