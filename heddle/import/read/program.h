// ForeignProgram: a graph as a file of another program states it, before anything is known of its ops.
//
// All readers make one, and GraphBuilder makes a graph of it. A text of the file that may come again is kept once, as a word: whoever
// asks for the same name later compares numbers. Arguments and items of all calls lie one behind the other, so that a statement
// allocates nothing.
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
// What is called, in ForeignProgram::targets: `aten.add.Tensor`, `_c10d_functional.wait_tensor.default`, `operator.ge`, `torch.sym_sum`.
using TargetId = Id<struct TargetTag>;

// An argument: a literal, the name of a value, or a list of arguments.
struct ForeignValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    // A value of the program.
    kName,
    // A constant of torch, or what Python would make of a call: `torch.bfloat16`, `device(type='cpu')`.
    kWord,
    kList,
    // Keys and values in turn.
    kDict,
  };
  // Items of a list, in ForeignProgram::values.
  struct Range {
    uint32_t first;
    uint32_t count;
  };
  Kind kind = Kind::kNone;
  bool boolean = false;
  // Of a string, a name or a constant.
  WordId word = {};
  // By kind. A program has many of these.
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
  // None for an argument by position.
  WordId name;
  ForeignValue value;
};

struct ForeignResult {
  WordId name;
  // Which of several results, by key or by number.
  WordId key = {};
  int64_t index = 0;
  const Type* stated = nullptr;
};

struct ForeignCall {
  // In the file.
  size_t offset = 0;
  // In ForeignProgram::types; null where the file does not state it.
  const Type* stated = nullptr;
  TargetId target;
  // What the call as a whole is called; a call of several results has a name for each that is used as well.
  WordId name;
  // In ForeignProgram::args.
  uint32_t first_arg = 0;
  uint32_t arg_count = 0;
  // In ForeignProgram::results.
  uint32_t first_result = 0;
  uint32_t result_count = 0;
  WordId scope = {};
  bool several = false;
  std::optional<Phase> phase = {};
};

struct ForeignInput {
  size_t offset = 0;
  WordId name;
  // In ForeignProgram::types; null until something states it.
  const Type* type = nullptr;
  // A size, not a tensor: what it is taken for.
  std::optional<int64_t> integer;
  // From a signature.
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
  // The parameter or input that it belongs to.
  WordId target = {};
  // The number of that input, if it is known; it goes before `target`.
  std::optional<size_t> input = {};
  WordId label = {};
  // In the file.
  size_t offset = 0;
};

// A process group: its ranks are not in the file, only how many there are.
struct ForeignGroup {
  WordId name;
  int64_t size = 0;
};

struct ForeignProgram {
  std::string name = "graph";
  std::vector<ForeignInput> inputs;
  // How many of them the caller passes; constants of the module come behind.
  size_t arguments = 0;
  std::vector<ForeignCall> calls;
  std::vector<ForeignOutput> outputs;
  // Where they stand, under the name `output`.
  ForeignCall output_call;
  std::vector<ForeignGroup> groups;
  // Inputs and outputs have the roles of a signature.
  bool has_signature = false;
  // The program states that it is a whole step, before it is spread over ranks.
  bool global = false;
  // What the file has: statements of its graph, those that only name a result of another among them.
  size_t statements = 0;
  size_t statements_folded = 0;

  // What all of these hold numbers of.
  StringTable<WordId> words;
  StringTable<TargetId> targets;
  std::vector<ForeignArg> args;
  std::vector<ForeignResult> results;
  std::vector<ForeignValue> values;
  // Types that the file states, which stay where they are.
  std::deque<Type> types;

  // Empty for none.
  std::string_view text(WordId word) const { return word ? words[word] : std::string_view(); }
  std::string_view text(const ForeignValue& value) const { return text(value.word); }
  std::string_view target(const ForeignCall& call) const { return targets[call.target]; }
  std::span<const ForeignArg> args_of(const ForeignCall& call) const {
    return {args.data() + call.first_arg, call.arg_count};
  }
  std::span<const ForeignResult> results_of(const ForeignCall& call) const {
    return {results.data() + call.first_result, call.result_count};
  }
  // None for what is no list.
  std::span<const ForeignValue> items(const ForeignValue& list) const {
    bool has = list.kind == ForeignValue::Kind::kList || list.kind == ForeignValue::Kind::kDict;
    if (!has) return {};
    return {values.data() + list.range.first, list.range.count};
  }
  // None for an empty text.
  WordId Word(std::string_view text) { return text.empty() ? WordId() : words.Intern(text); }
  // The path of a module; characters that a scope may not have become `_`. None if the path has an
  // empty part.
  WordId ScopeWord(std::string_view path);
  // The items from `begin` on, taken from a stack of those whose lists have not ended, as a list: items of lists inside of it
  // were before.
  ForeignValue TakeList(ForeignValue::Kind kind, std::vector<ForeignValue>& open, size_t begin);
  // Hands the results to their calls: for each the number of its call. Those of one call keep their order.
  void AssignResults(std::span<const uint32_t> calls_of_results);
};

}  // namespace heddle
