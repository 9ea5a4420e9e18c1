#include "heddle/run/tokenizer/decoder.h"

#include <charconv>

#include "heddle/core/base/utf8.h"
#include "heddle/run/tokenizer/bpe.h"
#include "heddle/run/tokenizer/unicode.h"

namespace heddle::run {
namespace {

using Parts = std::vector<std::string>;

// Appends the bytes of a token of byte-level BPE; of other tokens, the text.
void AppendByteLevel(std::string_view token, std::string& out) {
  size_t before = out.size();
  for (size_t at = 0; at < token.size();) {
    int byte = ByteOfCharacter(NextCharacter(token, at));
    if (byte < 0) {
      out.resize(before);
      out += token;
      return;
    }
    out += static_cast<char>(byte);
  }
}

// The byte of a token such as `<0x0A>`; -1 for other tokens.
int ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && token[3] != '-' ? byte : -1;
}

struct DecodeStepRunner {
  Parts& parts;

  Status operator()(ByteLevelDecoder) const {
    std::string bytes;
    for (const std::string& part : parts) AppendByteLevel(part, bytes);
    std::string text;
    AppendLossy(bytes, text);
    parts = {std::move(text)};
    return Done{};
  }

  Status operator()(ByteFallbackDecoder) const {
    Parts out;
    std::string bytes;
    auto flush = [&] {
      bool good = FirstNotUtf8(bytes) == bytes.size();
      if (good && !bytes.empty()) out.push_back(bytes);
      if (!good) out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (std::string& part : parts) {
      int byte = ByteOfToken(part);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(part));
    }
    flush();
    parts = std::move(out);
    return Done{};
  }

  Status operator()(FuseDecoder) const {
    std::string all;
    for (const std::string& part : parts) all += part;
    parts = {std::move(all)};
    return Done{};
  }

  Status operator()(const StripDecoder& step) const {
    std::string content;
    AppendUtf8(content, step.content);
    for (std::string& part : parts) {
      std::string_view rest = part;
      for (size_t i = 0; i < step.start && rest.starts_with(content); ++i)
        rest.remove_prefix(content.size());
      for (size_t i = 0; i < step.stop && rest.ends_with(content); ++i)
        rest.remove_suffix(content.size());
      part = std::string(rest);
    }
    return Done{};
  }

  Status operator()(const ReplaceDecoder& step) const {
    MatchMemory memory;
    std::vector<Span> spans;
    for (std::string& part : parts) {
      HEDDLE_RETURN_IF_ERROR(step.pattern.Find(part, memory, spans));
      std::string out;
      for (const Span& span : spans)
        out += span.match ? step.content : part.substr(span.begin, span.end - span.begin);
      part = std::move(out);
    }
    return Done{};
  }

  Status operator()(const MetaspaceDecoder& step) const {
    bool first = step.drops_first;
    for (std::string& part : parts) {
      std::string out;
      for (size_t at = 0; at < part.size();) {
        uint32_t character = NextCharacter(part, at);
        if (character != step.replacement) {
          AppendUtf8(out, character);
        } else if (!first) {
          out += ' ';
        }
      }
      part = std::move(out);
      first = false;
    }
    return Done{};
  }
};

}  // namespace

Result<std::string> DecodeParts(const std::vector<DecodeStep>& steps, Parts parts) {
  for (const DecodeStep& step : steps)
    HEDDLE_RETURN_IF_ERROR(std::visit(DecodeStepRunner{parts}, step));
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

}  // namespace heddle::run
