// JSON documents whose values know their path and their position in the text.
//
//   HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(text, "cluster.json", Diag::kJson));
//   for (auto [key, value] : document.root().fields())
//     if (!value.is_string())
//       return document.Fail(value, "`{}` is {}, expected text", value.path(), Describe(value));
//
// The reader is strict: it refuses a second value, text that is not UTF-8, a key that an object has
// twice, and numbers that a double cannot hold.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle {

class JsonDocument;

// A value of a JsonDocument, which must outlive it. It is a pointer and an index.
class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

  Kind kind() const;
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  // A number written without point and exponent that an int64_t holds. Other numbers are kFloat.
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_number() const { return is_int() || kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // Each of these requires a value of its kind; number() takes both kinds of number.
  bool boolean() const;
  int64_t integer() const;
  double number() const;
  std::string_view string() const;

  class ItemIterator;
  class FieldIterator;
  template <typename Iterator>
  class Range;
  using Items = Range<ItemIterator>;
  using Fields = Range<FieldIterator>;
  // The values of an array and the (key, value) pairs of an object, in the order of the text. Empty
  // for other kinds.
  Items items() const;
  Fields fields() const;
  // The value of a key; nullopt if it is missing or this is not an object.
  std::optional<JsonValue> Find(std::string_view key) const;

  // The offset of the value in the text, in bytes.
  size_t offset() const;
  // The text of the value, as in the file.
  std::string_view raw() const;
  // `device.kernels[2].name`; empty for the root.
  std::string path() const;

 private:
  friend class JsonDocument;
  friend class JsonParser;
  JsonValue(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}

  const JsonDocument* document_;
  uint32_t index_;
};

// The kind of a value, for messages: `null`, `true or false`, `a number`, `text`, `a list`, ...
std::string_view Describe(JsonValue value);
// A value for messages: `a list`, `an object`, or the text of the value, cut if it is long.
std::string Shown(JsonValue value);

class JsonDocument {
 public:
  // Nesting limit, which no valid input reaches.
  static constexpr int kDeepest = 1000;

  // Errors are of kind `diag` and name `file`.
  static Result<JsonDocument> Parse(std::string text, std::string file, Diag diag,
                                    int deepest = kDeepest);

  JsonValue root() const { return {this, 0}; }
  // An error of kind `diag` at a value.
  template <typename... Args>
  Failure Fail(JsonValue at, fmt::format_string<Args...> format, Args&&... args) const {
    return {{DiagnosticAt(at.offset(), fmt::format(format, std::forward<Args>(args)...))}};
  }
  Diagnostic DiagnosticAt(size_t offset, std::string_view message) const;
  const std::string& text() const { return source_->text; }

 private:
  friend class JsonValue;
  friend class JsonParser;
  using Kind = JsonValue::Kind;

  struct Span {
    uint32_t begin;
    uint32_t size;
  };
  // Values in the order of the text. The children of a value follow it. A key is a string before
  // its value.
  struct Node {
    uint32_t offset;
    Kind kind;
    // The string has escapes: it is Source::decoded[begin].
    bool is_decoded = false;
    union {
      // One past the last child of an array or object.
      uint32_t end;
      bool boolean;
      int64_t integer;
      double number;
      Span string;
    };
  };
  // On the heap, so that views stay valid when the document moves.
  struct Source {
    std::string text;
    std::string file;
    std::deque<std::string> decoded;
  };

  // One past the value at `index` and its children.
  uint32_t EndOf(uint32_t index) const {
    const Node& node = nodes_[index];
    bool has_children = node.kind == Kind::kArray || node.kind == Kind::kObject;
    return has_children ? node.end : index + 1;
  }

  std::unique_ptr<Source> source_ = std::make_unique<Source>();
  Diag diag_ = Diag::kJson;
  std::vector<Node> nodes_;
};

class JsonValue::ItemIterator {
 public:
  ItemIterator(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}
  JsonValue operator*() const { return {document_, index_}; }
  ItemIterator& operator++() {
    index_ = document_->EndOf(index_);
    return *this;
  }
  bool operator==(const ItemIterator& other) const { return index_ == other.index_; }

 private:
  const JsonDocument* document_;
  uint32_t index_;
};

class JsonValue::FieldIterator {
 public:
  FieldIterator(const JsonDocument* document, uint32_t key) : document_(document), key_(key) {}
  std::pair<std::string_view, JsonValue> operator*() const {
    return {JsonValue(document_, key_).string(), JsonValue(document_, key_ + 1)};
  }
  FieldIterator& operator++() {
    key_ = document_->EndOf(key_ + 1);
    return *this;
  }
  bool operator==(const FieldIterator& other) const { return key_ == other.key_; }

 private:
  const JsonDocument* document_;
  uint32_t key_;
};

template <typename Iterator>
class JsonValue::Range {
 public:
  Range(Iterator begin, Iterator end) : begin_(begin), end_(end) {}
  Iterator begin() const { return begin_; }
  Iterator end() const { return end_; }
  bool empty() const { return begin_ == end_; }

 private:
  Iterator begin_;
  Iterator end_;
};

inline JsonValue::Kind JsonValue::kind() const { return document_->nodes_[index_].kind; }

inline double JsonValue::number() const {
  HEDDLE_CHECK(is_number(), "a JSON value is not a number");
  const JsonDocument::Node& node = document_->nodes_[index_];
  return is_int() ? static_cast<double>(node.integer) : node.number;
}

}  // namespace heddle
