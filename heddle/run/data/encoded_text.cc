// Text that a tokenizer turns into tokens when it is opened.
#include <thread>

#include "heddle/run/data/source.h"
#include "heddle/run/data/tokenize.h"

namespace heddle::run {
namespace {

struct EncodedText {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> mask;
};

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
  auto text = std::make_shared<EncodedText>();
  std::vector<int64_t> ends;
  HEDDLE_RETURN_IF_ERROR(
      TokenizeDocuments(tokenizer, documents, options, [&](const DocumentTokens& done) -> Status {
        auto end = static_cast<int64_t>(text->tokens.size());
        for (uint32_t length : done.lengths) ends.push_back(end += length);
        text->tokens.insert(text->tokens.end(), done.tokens.begin(), done.tokens.end());
        text->mask.insert(text->mask.end(), done.mask.begin(), done.mask.end());
        return Done{};
      }));
  TokenSegment segment;
  segment.name = source;
  segment.bytes = {reinterpret_cast<const char*>(text->tokens.data()),
                   text->tokens.size() * sizeof(int32_t)};
  segment.type = TokenType::kI32;
  segment.mask = {reinterpret_cast<const char*>(text->mask.data()), text->mask.size()};
  segment.memory = text;
  SetDocuments(std::move(ends), segment);
  TokenSource out;
  out.kind = "text, encoded";
  out.train.Add(std::move(segment));
  out.skipped = documents.skipped;
  out.tokenizer = Format(tokenizer.hash());
  return out;
}

}  // namespace heddle::run
