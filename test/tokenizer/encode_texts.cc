// encode_texts TOKENIZER TEXTS OUTPUT: encodes and decodes texts for against_tokenizers.py.
//
// TEXTS has a 32-bit size before each text. OUTPUT gets for each text the number of tokens, the
// tokens, and the decoded text after its size, without and with special tokens; all in 32 bits.
#include <cstring>
#include <iostream>

#include "heddle/core/base/file.h"
#include "heddle/run/tokenizer/tokenizer.h"

namespace heddle {
namespace {

void Append(std::string& out, const void* data, size_t size) {
  out.append(static_cast<const char*>(data), size);
}
void AppendSized(std::string& out, std::string_view text) {
  auto size = static_cast<uint32_t>(text.size());
  Append(out, &size, sizeof(size));
  out += text;
}

Status EncodeTexts(const std::string& path, const std::string& texts, const std::string& output) {
  HEDDLE_TRY(std::shared_ptr<const run::Tokenizer> tokenizer, run::Tokenizer::Open(path));
  HEDDLE_TRY(std::string all, ReadFile(texts));
  run::TextEncoder encoder(*tokenizer);
  std::string out;
  std::vector<int32_t> tokens;
  for (std::string_view rest = all; !rest.empty();) {
    uint32_t size = 0;
    std::memcpy(&size, rest.data(), sizeof(size));
    std::string_view text = rest.substr(sizeof(size), size);
    rest.remove_prefix(sizeof(size) + size);
    tokens.clear();
    HEDDLE_RETURN_IF_ERROR(encoder.Encode(text, tokens));
    auto count = static_cast<uint32_t>(tokens.size());
    Append(out, &count, sizeof(count));
    Append(out, tokens.data(), tokens.size() * sizeof(int32_t));
    std::vector<int64_t> wide(tokens.begin(), tokens.end());
    for (bool special : {false, true}) {
      HEDDLE_TRY(std::string decoded, tokenizer->Decode(wide, special));
      AppendSized(out, decoded);
    }
  }
  return WriteFile(output, out);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  heddle::Status done = heddle::EncodeTexts(argv[1], argv[2], argv[3]);
  if (!done.ok()) std::cerr << heddle::Format(done.diagnostics());
  return done.ok() ? 0 : 1;
}
