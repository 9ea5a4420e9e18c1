// Values of an ExportedProgram's JSON: types of tensors, sizes, and arguments of calls.
#pragma once

#include <optional>
#include <unordered_map>

#include <simdjson.h>

#include "heddle/base/result.h"
#include "heddle/import/read/program.h"

namespace heddle {

using JsonElement = simdjson::dom::element;

// A field of an object; none where there is none, or null.
std::optional<JsonElement> JsonField(JsonElement e, std::string_view name);
std::optional<int64_t> JsonInt(JsonElement e);
// Empty where it is no text.
std::string_view JsonText(JsonElement e);
std::string_view JsonTextField(JsonElement e, std::string_view name);
// The tag of a union, and what it holds. A dataclass with all tags has one that is not null.
std::optional<std::pair<std::string_view, JsonElement>> JsonTagged(JsonElement e);

template <typename... Args>
Failure JsonFailure(const std::string& file, fmt::format_string<Args...> format, Args&&... args) {
  Failure failure = Error(Diag::kJson, format, std::forward<Args>(args)...);
  failure.diagnostics[0].file = file;
  return failure;
}

class ExportValues {
 public:
  // Both outlive this. Types, words and items of lists go to `program`.
  ExportValues(const std::string& file, ForeignProgram& program) : file_(file), program_(program) {}

  // `tensor_values` and `sym_int_values` of a graph.
  Status Read(JsonElement graph);
  // Null where the graph states none.
  const Type* TypeOf(WordId name) const;
  std::optional<int64_t> SizeOf(WordId name) const;

  // A value with a tag.
  Result<ForeignValue> Argument(JsonElement e) { return Argument(e, 0); }
  // What a value of a graph may be called.
  Result<ForeignValue> Name(std::string_view name);

 private:
  template <typename... Args>
  Failure Fail(fmt::format_string<Args...> format, Args&&... args) const {
    return JsonFailure(file_, format, std::forward<Args>(args)...);
  }
  Status ReadTensor(std::string_view name, JsonElement meta);
  Result<ForeignValue> Plain(JsonElement e, int depth);
  Result<ForeignValue> Items(JsonElement e, int depth);
  Result<ForeignValue> Argument(JsonElement e, int depth);

  const std::string& file_;
  ForeignProgram& program_;
  // By word.
  std::vector<const Type*> types_;
  std::unordered_map<uint32_t, int64_t> sizes_;
  // Items of lists that have not ended yet.
  std::vector<ForeignValue> open_items_;
};

}  // namespace heddle
