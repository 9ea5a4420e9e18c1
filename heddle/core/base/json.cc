#include "heddle/core/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/core/base/check.h"
#include "heddle/core/base/utf8.h"

namespace heddle {
namespace {

bool IsJsonDigit(char c) { return c >= '0' && c <= '9'; }
bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

// A recursive-descent parser. Its functions return whether they succeeded; failure_ has the reason.
class JsonParser {
 public:
  JsonParser(JsonDocument& document, int deepest)
      : document_(document),
        text_(document.source_->text),
        nodes_(document.nodes_),
        deepest_(deepest) {}

  Status Run() {
    bool good = text_.size() <= UINT32_MAX || Fail(0, "the text has more than 4 GiB");
    // An estimate of the number of values, which avoids repeated copies while the vector grows.
    nodes_.reserve(text_.size() / 12);
    SkipSpace();
    good = good && Value(0);
    SkipSpace();
    good = good && (at_ == text_.size() || Fail(at_, "there is more text after the value"));
    if (!good) return std::move(failure_);
    return Done{};
  }

 private:
  using Kind = JsonValue::Kind;
  using Node = JsonDocument::Node;

  bool Fail(size_t offset, std::string_view message) {
    failure_ = {{document_.DiagnosticAt(offset, fmt::format("not JSON: {}", message))}};
    return false;
  }
  // `text_` is a std::string, so the byte after its end is 0.
  char Peek() const { return text_.data()[at_]; }
  void SkipSpace() {
    while (IsJsonSpace(Peek())) ++at_;
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  size_t Add(Kind kind) {
    nodes_.push_back({.offset = static_cast<uint32_t>(at_), .kind = kind, .integer = 0});
    return nodes_.size() - 1;
  }
  bool End(size_t node) {
    nodes_[node].end = static_cast<uint32_t>(nodes_.size());
    return true;
  }

  bool Value(int depth) {
    if (depth > deepest_)
      return Fail(at_, fmt::format("values are nested more than {} levels deep", deepest_));
    switch (Peek()) {
      case '{': return Object(depth);
      case '[': return Array(depth);
      case '"': return String();
      case 't': return Word("true", Kind::kBool, true);
      case 'f': return Word("false", Kind::kBool, false);
      case 'n': return Word("null", Kind::kNull, false);
      default: return Number();
    }
  }

  bool Word(std::string_view word, Kind kind, bool truth) {
    if (!text_.substr(at_).starts_with(word)) return Fail(at_, "expected a value");
    size_t node = Add(kind);
    nodes_[node].boolean = truth;
    at_ += word.size();
    return true;
  }

  bool Array(int depth) {
    size_t node = Add(Kind::kArray);
    ++at_;
    SkipSpace();
    if (Take(']')) return End(node);
    do {
      SkipSpace();
      if (!Value(depth + 1)) return false;
      SkipSpace();
    } while (Take(','));
    if (!Take(']')) return Fail(at_, "expected `,` or `]` in a list");
    return End(node);
  }

  bool Object(int depth) {
    size_t node = Add(Kind::kObject);
    ++at_;
    SkipSpace();
    if (Take('}')) return End(node);
    do {
      SkipSpace();
      if (Peek() != '"') return Fail(at_, "expected a key in quotes");
      if (!String()) return false;
      SkipSpace();
      if (!Take(':')) return Fail(at_, "expected `:` after a key");
      SkipSpace();
      if (!Value(depth + 1)) return false;
      SkipSpace();
    } while (Take(','));
    if (!Take('}')) return Fail(at_, "expected `,` or `}` in an object");
    return End(node) && CheckKeys(node);
  }

  bool CheckKeys(size_t object) {
    keys_.clear();
    for (auto i = static_cast<uint32_t>(object + 1); i < nodes_[object].end;
         i = document_.EndOf(i + 1))
      keys_.emplace_back(JsonValue(&document_, i).string(), nodes_[i].offset);
    // For a few keys, comparing all pairs is faster than sorting.
    if (keys_.size() <= 8) return CheckFewKeys();
    std::ranges::sort(keys_);
    auto twice = std::ranges::adjacent_find(
        keys_, [](const auto& a, const auto& b) { return a.first == b.first; });
    return twice == keys_.end() || FailTwice(*(twice + 1));
  }
  bool CheckFewKeys() {
    for (size_t i = 0; i < keys_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (keys_[i].first == keys_[j].first) return FailTwice(keys_[i]);
      }
    }
    return true;
  }
  bool FailTwice(const std::pair<std::string_view, uint32_t>& key) {
    return Fail(key.second, fmt::format("the key `{}` is given twice", key.first));
  }

  bool TakeDigits() {
    size_t first = at_;
    while (IsJsonDigit(Peek())) ++at_;
    return at_ > first;
  }

  bool Number() {
    size_t begin = at_;
    size_t node = Add(Kind::kInt);
    Take('-');
    size_t first = at_;
    if (!TakeDigits()) return Fail(begin, at_ > begin ? "expected digits" : "expected a value");
    if (text_[first] == '0' && at_ - first > 1) return Fail(first, "a number begins with 0");
    bool whole = true;
    if (Take('.')) {
      whole = false;
      if (!TakeDigits()) return Fail(at_, "expected digits after the point");
    }
    if (Take('e') || Take('E')) {
      whole = false;
      if (!Take('-')) Take('+');
      if (!TakeDigits()) return Fail(at_, "expected digits in an exponent");
    }
    const char* from = text_.data() + begin;
    const char* to = text_.data() + at_;
    Node& number = nodes_[node];
    if (!whole || std::from_chars(from, to, number.integer).ec != std::errc()) {
      number.kind = Kind::kFloat;
      auto [end, error] = std::from_chars(from, to, number.number);
      // Numbers too close to 0 for a double read as 0, as in other JSON readers.
      if (error == std::errc::result_out_of_range) number.number = std::strtod(from, nullptr);
      if (!std::isfinite(number.number))
        return Fail(begin, "the number exceeds the range of a double");
    }
    return true;
  }

  bool String() {
    size_t node = Add(Kind::kString);
    size_t begin = ++at_;
    if (!Characters()) return false;
    if (Peek() == '\\') return EscapedString(node, begin);
    nodes_[node].string = {static_cast<uint32_t>(begin), static_cast<uint32_t>(at_ - begin)};
    return Take('"') || Fail(begin - 1, "a text in quotes does not end");
  }

  // Skips characters that are not escaped, up to a quote or a backslash.
  bool Characters() {
    while (at_ < text_.size()) {
      auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"' || c == '\\') break;
      if (c < 0x20) return Fail(at_, "a text has a control character; write it as \\u....");
      size_t size = c < 0x80 ? 1 : Utf8Length(text_.substr(at_));
      if (size == 0) return Fail(at_, "a text is not UTF-8");
      at_ += size;
    }
    return true;
  }

  bool EscapedString(size_t node, size_t begin) {
    std::deque<std::string>& all = document_.source_->decoded;
    std::string& decoded = all.emplace_back(text_.substr(begin, at_ - begin));
    while (Peek() == '\\') {
      if (!Escape(decoded)) return false;
      size_t first = at_;
      if (!Characters()) return false;
      decoded += text_.substr(first, at_ - first);
    }
    if (!Take('"')) return Fail(begin - 1, "a text in quotes does not end");
    nodes_[node].is_decoded = true;
    nodes_[node].string = {static_cast<uint32_t>(all.size() - 1), 0};
    return true;
  }

  bool Escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    size_t begin = at_++;
    size_t letter = at_ < text_.size() ? kLetters.find(text_[at_]) : std::string_view::npos;
    if (letter != std::string_view::npos) {
      out += kMeanings[letter];
      ++at_;
      return true;
    }
    if (!Take('u')) return Fail(begin, "an escape that JSON does not have");
    uint32_t point = 0;
    if (!HexDigits(begin, point)) return false;
    bool high = point >= 0xD800 && point < 0xDC00;
    if (high && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      uint32_t low = 0;
      if (!HexDigits(begin, low)) return false;
      if (low >= 0xDC00 && low < 0xE000) point = 0x10000 + ((point - 0xD800) << 10) + low - 0xDC00;
    }
    if (point >= 0xD800 && point < 0xE000) return Fail(begin, "half of a pair of \\u escapes");
    AppendUtf8(out, point);
    return true;
  }

  bool HexDigits(size_t escape, uint32_t& point) {
    const char* from = text_.data() + at_;
    const char* to = from + std::min<size_t>(4, text_.size() - at_);
    auto [end, error] = std::from_chars(from, to, point, 16);
    if (error != std::errc() || end != from + 4) return Fail(escape, "\\u takes four digits");
    at_ += 4;
    return true;
  }

  JsonDocument& document_;
  std::string_view text_;
  std::vector<Node>& nodes_;
  int deepest_;
  size_t at_ = 0;
  Failure failure_;
  // Reused between objects.
  std::vector<std::pair<std::string_view, uint32_t>> keys_;
};

Result<JsonDocument> JsonDocument::Parse(std::string text, std::string file, Diag diag,
                                         int deepest) {
  JsonDocument document;
  document.source_->text = std::move(text);
  document.source_->file = std::move(file);
  document.diag_ = diag;
  HEDDLE_RETURN_IF_ERROR(JsonParser(document, deepest).Run());
  return document;
}

Diagnostic JsonDocument::DiagnosticAt(size_t offset, std::string_view message) const {
  SourceText source(source_->file, source_->text);
  return source.At(MakeDiagnostic(diag_, "{}", message), offset);
}

size_t JsonValue::offset() const { return document_->nodes_[index_].offset; }

bool JsonValue::boolean() const {
  HEDDLE_CHECK(is_bool(), "a JSON value is not a bool");
  return document_->nodes_[index_].boolean;
}

int64_t JsonValue::integer() const {
  HEDDLE_CHECK(is_int(), "a JSON value is not a whole number");
  return document_->nodes_[index_].integer;
}

std::string_view JsonValue::string() const {
  HEDDLE_CHECK(is_string(), "a JSON value is not text");
  const JsonDocument::Node& node = document_->nodes_[index_];
  if (node.is_decoded) return document_->source_->decoded[node.string.begin];
  return std::string_view(document_->source_->text).substr(node.string.begin, node.string.size);
}

JsonValue::Items JsonValue::items() const {
  uint32_t end = is_array() ? document_->nodes_[index_].end : index_ + 1;
  return {{document_, index_ + 1}, {document_, end}};
}

JsonValue::Fields JsonValue::fields() const {
  uint32_t end = is_object() ? document_->nodes_[index_].end : index_ + 1;
  return {{document_, index_ + 1}, {document_, end}};
}

std::optional<JsonValue> JsonValue::Find(std::string_view key) const {
  for (auto [name, value] : fields()) {
    if (name == key) return value;
  }
  return std::nullopt;
}

std::string_view JsonValue::raw() const {
  std::string_view text = std::string_view(document_->text()).substr(offset());
  int depth = 0;
  bool is_quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    bool ends = false;
    if (is_quoted) {
      if (c == '\\') ++i;
      is_quoted = c != '"';
      ends = !is_quoted;
    } else if (c == '"') {
      is_quoted = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ']' || c == '}' || IsJsonSpace(c))) {
      return text.substr(0, i);
    } else if (c == ']' || c == '}') {
      --depth;
      ends = true;
    }
    if (ends && depth == 0) return text.substr(0, i + 1);
  }
  return text;
}

std::string JsonValue::path() const {
  std::string path;
  // Descend from the root into the child whose range contains this value.
  JsonValue at = document_->root();
  while (at.index_ != index_) {
    auto leads_here = [&](JsonValue child) {
      return child.index_ <= index_ && index_ < document_->EndOf(child.index_);
    };
    JsonValue parent = at;
    size_t position = 0;
    for (JsonValue item : parent.items()) {
      if (leads_here(item)) {
        path += fmt::format("[{}]", position);
        at = item;
        break;
      }
      ++position;
    }
    for (auto [key, value] : parent.fields()) {
      if (!leads_here(value)) continue;
      path += fmt::format("{}{}", path.empty() ? "" : ".", key);
      at = value;
      break;
    }
    HEDDLE_CHECK(at.index_ != parent.index_, "a JSON value has no path");
  }
  return path;
}

std::string_view Describe(JsonValue value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull: return "null";
    case JsonValue::Kind::kBool: return "true or false";
    case JsonValue::Kind::kInt:
    case JsonValue::Kind::kFloat: return "a number";
    case JsonValue::Kind::kString: return "text";
    case JsonValue::Kind::kArray: return "a list";
    case JsonValue::Kind::kObject: return "an object";
  }
  return "";
}

std::string Shown(JsonValue value) {
  if (value.is_array() || value.is_object()) return std::string(Describe(value));
  constexpr size_t kMost = 40;
  std::string_view raw = value.raw();
  return raw.size() <= kMost ? std::string(raw) : fmt::format("{}...", Utf8Prefix(raw, kMost - 3));
}

}  // namespace heddle
