// Token files without a list of documents: nanoGPT's and llm.c's. Also detects the kind of a file.
#include <cstring>

#include "heddle/core/base/text.h"
#include "heddle/run/data/files_below.h"
#include "heddle/run/data/source.h"

namespace heddle::run {
namespace {

// llm.c's format: a header of 256 numbers of 32 bits (vocabulary, version, number of tokens, ...),
// then the tokens. Documents begin with the end-of-text token, which therefore ends the previous
// document.
struct LlmcKind {
  int32_t magic;
  int32_t version;
  TokenType type;
  int64_t end_of_text;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, TokenType::kU16, 50256},
                                   {20240801, 7, TokenType::kU32, 128000}};
constexpr size_t kLlmcHeader = 256 * sizeof(int32_t);

int32_t Int32At(std::string_view bytes, size_t at) {
  int32_t value = 0;
  std::memcpy(&value, bytes.data() + at * sizeof value, sizeof value);
  return value;
}

const LlmcKind* FindLlmcKind(std::string_view bytes) {
  if (bytes.size() < sizeof(int32_t)) return nullptr;
  for (const LlmcKind& kind : kLlmcKinds) {
    if (Int32At(bytes, 0) == kind.magic) return &kind;
  }
  return nullptr;
}

Result<TokenSegment> ReadLlmc(const LlmcKind& kind, std::shared_ptr<const MappedFile> file) {
  std::string_view bytes = file->bytes();
  if (bytes.size() < kLlmcHeader)
    return Error(Diag::kData, "`{}` has {} bytes, but the header of llm.c's files has {}",
                 file->path(), bytes.size(), kLlmcHeader);
  if (Int32At(bytes, 1) != kind.version)
    return Error(Diag::kData, "`{}` has version {} of llm.c's format, expected {}", file->path(),
                 Int32At(bytes, 1), kind.version);
  int64_t count = Int32At(bytes, 2);
  int64_t size = static_cast<int64_t>(bytes.size() - kLlmcHeader);
  if (count < 0 || count * SizeOf(kind.type) != size)
    return Error(Diag::kData,
                 "`{}` has {} bytes of tokens, but its header specifies {} tokens of {}",
                 file->path(), size, count, Counted(SizeOf(kind.type), "byte"));
  TokenSegment segment;
  segment.name = file->path();
  segment.bytes = bytes.substr(kLlmcHeader);
  segment.type = kind.type;
  segment.document_end = kind.end_of_text;
  segment.file = std::move(file);
  return segment;
}

Result<TokenSegment> ReadNanoGpt(std::shared_ptr<const MappedFile> file) {
  std::string_view bytes = file->bytes();
  if (bytes.size() % 2 != 0)
    return Error(Diag::kData, "`{}` has {} bytes, expected a multiple of 2, the size of a token",
                 file->path(), bytes.size());
  TokenSegment segment;
  segment.name = file->path();
  segment.bytes = bytes;
  segment.type = TokenType::kU16;
  segment.file = std::move(file);
  return segment;
}

}  // namespace

bool IsTokenFile(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".idx") || path.ends_with(".safetensors");
}

Result<TokenFile> OpenTokenFile(const std::string& path) {
  if (path.ends_with(".safetensors")) {
    HEDDLE_TRY(TokenSegment segment, OpenSafetensorsTokens(path));
    return TokenFile{"safetensors tokens", std::move(segment)};
  }
  std::string stem = path.substr(0, path.size() - 4);
  if (path.ends_with(".idx") || IsFile(stem + ".idx")) {
    HEDDLE_TRY(TokenSegment segment, OpenMegatron(stem + ".bin", stem + ".idx"));
    return TokenFile{"Megatron-LM tokens", std::move(segment)};
  }
  HEDDLE_TRY(auto file, MappedFile::Open(path));
  if (const LlmcKind* kind = FindLlmcKind(file->bytes())) {
    HEDDLE_TRY(TokenSegment segment, ReadLlmc(*kind, std::move(file)));
    return TokenFile{"llm.c tokens", std::move(segment)};
  }
  HEDDLE_TRY(TokenSegment segment, ReadNanoGpt(std::move(file)));
  return TokenFile{"nanoGPT tokens", std::move(segment)};
}

}  // namespace heddle::run
