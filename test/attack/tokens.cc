#include "test/attack/tokens.h"

#include <cctype>

#include "heddle/core/base/scanner.h"

namespace heddle {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

Token::Kind TakeToken(Scanner& scan) {
  std::string_view rest = scan.text().substr(scan.offset());
  char next = rest.size() > 1 ? rest[1] : '\0';
  auto skip_mark = [&] { scan.set_offset(scan.offset() + 1); };
  if (rest[0] == '"' && scan.TakeQuoted()) return Token::Kind::kString;
  if (IsDigit(rest[0]) || (rest[0] == '-' && IsDigit(next))) {
    scan.TakeRawRun(CharClass::kNumber);
    return Token::Kind::kNumber;
  }
  if (rest[0] == '%' || rest[0] == '@') {
    skip_mark();
    scan.TakeRawRun(rest[0] == '%' ? CharClass::kName : CharClass::kScope);
    return rest[0] == '%' ? Token::Kind::kValue : Token::Kind::kScope;
  }
  if (!scan.TakeRawRun(CharClass::kName).empty()) return Token::Kind::kWord;
  skip_mark();
  return Token::Kind::kMark;
}

}  // namespace

Tokens Tokenize(std::string_view text) {
  Tokens tokens;
  Scanner scan(text);
  for (;;) {
    size_t begin = scan.offset();
    scan.SkipSpace();
    Token token{Token::Kind::kMark, std::string(text.substr(begin, scan.offset() - begin)), ""};
    begin = scan.offset();
    if (begin == text.size()) {
      tokens.push_back(std::move(token));
      return tokens;
    }
    token.kind = TakeToken(scan);
    token.text = text.substr(begin, scan.offset() - begin);
    tokens.push_back(std::move(token));
  }
}

std::string Print(const Tokens& tokens) {
  std::string text;
  for (const Token& token : tokens) text += token.space + token.text;
  return text;
}

bool BeginsLine(const Token& token) { return token.space.find('\n') != std::string::npos; }

}  // namespace heddle
