// ForeignProgram: a graph as its file states it, before its ops are resolved.
//
// All readers produce one, and GraphBuilder converts it to a graph. Texts are interned as words, so
// comparing names compares numbers. Arguments and list items of all calls are stored consecutively,
// so that a statement allocates nothing.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/strings.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// A name, a string or a constant, in ForeignProgram::words.
using WordId = Id<struct WordTag>;
// The name of a called function, in ForeignProgram::targets: `aten.add.Tensor`, `operator.ge`,
// `_c10d_functional.wait_tensor.default`, `torch.sym_sum`.
using TargetId = Id<struct TargetTag>;

// An argument: a literal, the name of a value, or a list of arguments.
struct ForeignValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    // The name of a value of the program.
    kName,
    // A constant of torch, or a call that builds a constant: `torch.bfloat16`,
    // `device(type='cpu')`.
    kWord,
    kList,
    // Keys and values alternate.
    kDict,
  };
  // The range of a list's items in ForeignProgram::values.
  struct Range {
    uint32_t first;
    uint32_t count;
  };
  Kind kind = Kind::kNone;
  bool boolean = false;
  // The text of a string, a name or a constant.
  WordId word = {};
  // Selected by `kind`. A union, because a program has many values.
  union {
    int64_t integer = 0;
    double number;
    Range range;
  };

  static ForeignValue Of(Kind kind, WordId word) {
    ForeignValue value;
    value.kind = kind;
    value.word = word;
    return value;
  }
};

struct ForeignArg {
  // None for a positional argument.
  WordId name;
  ForeignValue value;
};

struct ForeignResult {
  WordId name;
  // Selects one of several results, by key or by number.
  WordId key = {};
  int64_t index = 0;
  const Type* stated = nullptr;
};

struct ForeignCall {
  // Offset in the file.
  size_t offset = 0;
  // In ForeignProgram::types; null if the file does not state it.
  const Type* stated = nullptr;
  TargetId target;
  // The name of the whole call. A call with several results also has a name for each used result.
  WordId name;
  // First index in ForeignProgram::args.
  uint32_t first_arg = 0;
  uint32_t arg_count = 0;
  // First index in ForeignProgram::results.
  uint32_t first_result = 0;
  uint32_t result_count = 0;
  WordId scope = {};
  bool several = false;
  std::optional<Phase> phase = {};
};

struct ForeignInput {
  size_t offset = 0;
  WordId name;
  // In ForeignProgram::types; null until a part of the file states it.
  const Type* type = nullptr;
  // The example value, if the input is a size and not a tensor.
  std::optional<int64_t> integer;
  // The role in a signature.
  InputRole role = InputRole::kPlain;
  WordId label = {};
  // The number of a parameter, -1 to count them; of optimizer state, the number of its parameter.
  int64_t index = -1;
  // The FSDP unit of a parameter.
  WordId unit = {};
};

struct ForeignOutput {
  ForeignValue value;
  OutputRole role = OutputRole::kPlain;
  // The parameter or input that the output belongs to.
  WordId target = {};
  // The position of that input, if it is known; it takes precedence over `target`.
  std::optional<size_t> input = {};
  WordId label = {};
  // Offset in the file.
  size_t offset = 0;
};

// A process group. The file states its number of ranks, but not the ranks.
struct ForeignGroup {
  WordId name;
  int64_t size = 0;
};

struct ForeignProgram {
  std::string name = "graph";
  std::vector<ForeignInput> inputs;
  // The number of inputs that the caller passes. Constants of the module follow them.
  size_t arguments = 0;
  std::vector<ForeignCall> calls;
  std::vector<ForeignOutput> outputs;
  // The returned values, as arguments of a call named `output`.
  ForeignCall output_call;
  std::vector<ForeignGroup> groups;
  // Whether a signature states the roles of inputs and outputs.
  bool has_signature = false;
  // Whether the program is a whole step, before it is split over ranks.
  bool global = false;
  // The number of statements in the graph, including those that only name a result.
  size_t statements = 0;
  size_t statements_folded = 0;

  // Texts of all WordIds in this struct.
  StringTable<WordId> words;
  StringTable<TargetId> targets;
  std::vector<ForeignArg> args;
  std::vector<ForeignResult> results;
  std::vector<ForeignValue> values;
  // Types that the file states. A deque, so that pointers stay valid.
  std::deque<Type> types;

  // Empty for a none id.
  std::string_view text(WordId word) const { return word ? words[word] : std::string_view(); }
  std::string_view text(const ForeignValue& value) const { return text(value.word); }
  std::string_view target(const ForeignCall& call) const { return targets[call.target]; }
  std::span<const ForeignArg> args_of(const ForeignCall& call) const {
    return {args.data() + call.first_arg, call.arg_count};
  }
  std::span<const ForeignResult> results_of(const ForeignCall& call) const {
    return {results.data() + call.first_result, call.result_count};
  }
  // Empty for a value that is not a list.
  std::span<const ForeignValue> items(const ForeignValue& list) const {
    bool has = list.kind == ForeignValue::Kind::kList || list.kind == ForeignValue::Kind::kDict;
    if (!has) return {};
    return {values.data() + list.range.first, list.range.count};
  }
  // None for an empty text.
  WordId Word(std::string_view text) { return text.empty() ? WordId() : words.Intern(text); }
  // Makes the path of a module a scope: characters that are invalid in a scope become `_`. None if
  // the path has an empty part.
  WordId ScopeWord(std::string_view path);
  // Makes a list of the items from `begin` on. `open` is a stack of the items of unfinished lists;
  // items of nested lists have already been taken from it.
  ForeignValue TakeList(ForeignValue::Kind kind, std::vector<ForeignValue>& open, size_t begin);
  // Assigns results to calls, given the index of the call of each result. Results of one call keep
  // their order.
  void AssignResults(std::span<const uint32_t> calls_of_results);
};

}  // namespace heddle
