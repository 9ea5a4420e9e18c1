// Values of an ExportedProgram's JSON: types of tensors, sizes, and arguments of calls.
#pragma once

#include <optional>
#include <unordered_map>

#include "heddle/core/base/json.h"
#include "heddle/import/read/program.h"

namespace heddle {

class ExportValues {
 public:
  // Both must outlive this. Types, words and list items are added to `program`.
  ExportValues(const JsonDocument& document, ForeignProgram& program)
      : document_(document), program_(program) {}

  // Reads `tensor_values` and `sym_int_values` of a graph.
  Status ReadTensors(JsonValue tensors);
  void ReadSizes(JsonValue sizes);
  // Null if the graph states no type for the name.
  const Type* TypeOf(WordId name) const;
  std::optional<int64_t> SizeOf(WordId name) const;

  // An argument: an object whose only field that is not null is its tag.
  Result<ForeignValue> Argument(JsonValue e) { return Tagged(e, 0); }
  // The offset of the last name that was read.
  size_t name_place() const { return name_place_; }

 private:
  Result<Type> ReadType(std::string_view name, JsonValue meta) const;
  Result<ForeignValue> Tagged(JsonValue e, int depth);
  Result<ForeignValue> Untag(std::string_view tag, JsonValue e, int depth);
  // An untagged value, as in lists.
  Result<ForeignValue> Plain(JsonValue e, int depth);
  Result<ForeignValue> Items(JsonValue list, int depth);
  Result<ForeignValue> Float(JsonValue e) const;
  // A name of a value of the graph.
  Result<ForeignValue> Name(JsonValue e);
  // A constant under its Python name.
  ForeignValue Constant(std::string_view tag, JsonValue e);

  const JsonDocument& document_;
  ForeignProgram& program_;
  std::unordered_map<uint32_t, const Type*> types_;
  std::unordered_map<uint32_t, int64_t> sizes_;
  size_t name_place_ = 0;
};

// Whether `text` is valid as the name of a value in a graph.
bool IsValueName(std::string_view text);

}  // namespace heddle
