// Values of an ExportedProgram's JSON: types of tensors, sizes, and arguments of calls.
#pragma once

#include <optional>
#include <unordered_map>

#include "heddle/import/read/json_walk.h"
#include "heddle/import/read/program.h"

namespace heddle {

// As JsonWalk does, all of it answers whether it could be read, and leaves what could not to the walk.
class ExportValues {
 public:
  // Both outlive this. Types, words and items of lists go to `program`.
  ExportValues(JsonWalk& walk, ForeignProgram& program) : walk_(walk), program_(program) {}

  // `tensor_values` and `sym_int_values` of a graph.
  bool ReadTensors(JsonValue tensors);
  bool ReadSizes(JsonValue sizes);
  // Null where the graph states none.
  const Type* TypeOf(WordId name) const;
  std::optional<int64_t> SizeOf(WordId name) const;

  // A value with a tag.
  bool Argument(JsonValue e, ForeignValue& value);
  // Whether this is a tensor for an argument of a call, to the letter as torch.export writes it: `{"name": "self", "arg": ..., "kind": 1}`,
  // or without a kind. If so it remains to be passed over.
  bool IsTensorInput(JsonValue e, std::string_view& name, ForeignValue& value);
  // What a value of a graph may be called.
  bool Name(JsonValue e, ForeignValue& value);
  static bool IsName(std::string_view text);
  // Where the last name stands that was read, behind its quote.
  size_t name_place() const { return name_place_; }

 private:
  using Kind = ForeignValue::Kind;

  bool ReadTensor(std::string_view name, JsonValue meta);
  bool ReadType(std::string_view name, size_t place, simdjson::ondemand::object& meta,
                const Type*& type);
  bool ReadDims(std::string_view name, JsonValue sizes, Dims& dims);
  bool Size(JsonValue e, std::optional<int64_t>& size);
  bool SizeHint(JsonValue expression, std::optional<int64_t>& size);

  bool Argument(JsonValue e, int depth, ForeignValue& value) {
    return Tagged(e, depth, false, value);
  }
  // An object with one field that is not null, its tag. Where it may be a name, a field `name` says more than any tag.
  bool Tagged(JsonValue e, int depth, bool may_be_name, ForeignValue& value);
  bool Untag(std::string_view tag, JsonValue e, int depth, ForeignValue& value);
  bool NameField(JsonValue e, ForeignValue& value);
  bool Plain(JsonValue e, int depth, ForeignValue& value);
  bool Number(JsonValue e, ForeignValue& value);
  bool Float(JsonValue e, ForeignValue& value);
  bool Constant(std::string_view tag, JsonValue e, ForeignValue& value);
  bool Items(JsonValue e, int depth, ForeignValue& value);

  WordId NameWord(std::string_view name);

  JsonWalk& walk_;
  ForeignProgram& program_;
  // By word.
  std::vector<const Type*> types_;
  std::unordered_map<uint32_t, int64_t> sizes_;
  // Most texts of types come again.
  StringTable<Id<struct MetaTag>> metas_;
  std::vector<const Type*> meta_types_;
  // Items of lists that have not ended yet.
  std::vector<ForeignValue> open_items_;
  size_t name_place_ = 0;
  // Names mostly come in the order in which they came before, in one or two places of it: the numbers of those that may be next.
  size_t likely_[2] = {0, 0};
  size_t oldest_likely_ = 0;
};

}  // namespace heddle
