#include "heddle/run/tokenizer/unicode.h"

#include <algorithm>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "heddle/core/base/check.h"
#include "heddle/core/base/utf8.h"

namespace heddle::run {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

const icu::Normalizer2& NormalizerOf(NormalForm form) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case NormalForm::kNfc: normalizer = icu::Normalizer2::getNFCInstance(code); break;
    case NormalForm::kNfd: normalizer = icu::Normalizer2::getNFDInstance(code); break;
    case NormalForm::kNfkc: normalizer = icu::Normalizer2::getNFKCInstance(code); break;
    case NormalForm::kNfkd: normalizer = icu::Normalizer2::getNFKDInstance(code); break;
  }
  HEDDLE_CHECK(U_SUCCESS(code) && normalizer != nullptr, "ICU has no normalization data");
  return *normalizer;
}

// Number of bytes at the start of `bytes`, which begin no valid character, to replace together: the
// longest start of a character, or one byte.
size_t BrokenLength(std::string_view bytes) {
  auto first = static_cast<unsigned char>(bytes[0]);
  if (first < 0xC2 || first > 0xF4 || bytes.size() < 2) return 1;
  auto second = static_cast<unsigned char>(bytes[1]);
  unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (first < 0xE0 || second < low || second > high) return 1;
  return first >= 0xF0 && bytes.size() > 2 && IsContinuation(bytes[2]) ? 3 : 2;
}

}  // namespace

uint32_t NextCharacter(std::string_view text, size_t& at) {
  auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  uint32_t first = byte(at);
  if (first < 0x80) return byte(at++);
  size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint32_t character = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) character = character << 6 | (byte(at + i) & 0x3F);
  at += length;
  return character;
}

uint32_t LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (IsContinuation(text[at])) --at;
  return NextCharacter(text, at);
}

bool IsWhiteSpace(uint32_t character) {
  if (character < 0x80) return character == ' ' || (character >= '\t' && character <= '\r');
  return u_isUWhiteSpace(static_cast<UChar32>(character)) != 0;
}

bool IsWordCharacter(uint32_t character) {
  auto point = static_cast<UChar32>(character);
  return u_isUAlphabetic(point) != 0 || u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) != 0 ||
         (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

size_t EndOfLeadingSpace(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    size_t next = end;
    if (!IsWhiteSpace(NextCharacter(text, next))) break;
    end = next;
  }
  return end;
}

size_t BeginOfTrailingSpace(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && IsWhiteSpace(LastCharacter(text.substr(0, begin)))) {
    do --begin;
    while (IsContinuation(text[begin]));
  }
  return begin;
}

void AppendNormalized(NormalForm form, std::string_view text, std::string& out) {
  // ASCII is normalized in every form.
  if (IsAscii(text)) {
    out += text;
    return;
  }
  UErrorCode code = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(&out);
  // Sizes of ICU are 32-bit. A cut before ASCII is safe: it neither composes nor reorders.
  constexpr size_t kPart = size_t{1} << 26;
  while (!text.empty()) {
    size_t size = std::min(kPart, text.size());
    while (size < text.size() && static_cast<unsigned char>(text[size]) >= 0x80 && size < 2 * kPart)
      ++size;
    while (size < text.size() && IsContinuation(text[size])) ++size;
    NormalizerOf(form).normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(size)),
                                     sink, nullptr, code);
    HEDDLE_CHECK(U_SUCCESS(code), "ICU does not normalize valid UTF-8");
    text.remove_prefix(size);
  }
}

void AppendLowercase(std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    uint32_t character = NextCharacter(text, at);
    // The only character with two lowercase characters, whatever surrounds it.
    if (character == 0x130) {
      out += "i\xCC\x87";
    } else {
      AppendUtf8(out, static_cast<uint32_t>(u_tolower(static_cast<UChar32>(character))));
    }
  }
}

void AppendLossy(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    size_t good = FirstNotUtf8(bytes);
    out += bytes.substr(0, good);
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    out += kReplacementCharacter;
    bytes.remove_prefix(BrokenLength(bytes));
  }
}

}  // namespace heddle::run
