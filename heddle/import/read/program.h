// ForeignProgram: a graph as a file of another program states it, before anything is known of its ops.
//
// All readers make one, and GraphBuilder makes a graph of it. Texts are parts of the file, or of the program's own store.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/graph.h"

namespace heddle {

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
  Kind kind = Kind::kNone;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string_view text = {};
  // Items of a list, in ForeignProgram::values.
  uint32_t first = 0;
  uint32_t count = 0;
};

struct ForeignArg {
  // Empty for an argument by position.
  std::string_view name;
  ForeignValue value;
};

struct ForeignResult {
  std::string_view name;
  // Which of several results, by number or by key.
  int64_t index = 0;
  std::string_view key = {};
  std::optional<Type> stated = {};
};

struct ForeignCall {
  // In the file.
  size_t offset = 0;
  // `aten.add.Tensor`, `_c10d_functional.wait_tensor.default`, `operator.ge`, `torch.sym_sum`.
  std::string_view target;
  // What the call as a whole is called; a call of several results has a name for each that is used as well.
  std::string_view name;
  std::optional<Type> stated = {};
  bool several = false;
  std::vector<ForeignArg> args;
  std::vector<ForeignResult> results;
  std::string_view scope = {};
  std::optional<Phase> phase = {};
};

struct ForeignInput {
  size_t offset = 0;
  std::string_view name;
  // None until something states it.
  std::optional<Type> type;
  // A size, not a tensor: what it is taken for.
  std::optional<int64_t> integer;
  // From a signature.
  InputRole role = InputRole::kPlain;
  std::string_view label = {};
};

struct ForeignOutput {
  ForeignValue value;
  OutputRole role = OutputRole::kPlain;
  // The parameter or input that it belongs to.
  std::string_view target = {};
};

// A process group: its ranks are not in the file, only how many there are.
struct ForeignGroup {
  std::string_view name;
  int64_t size = 0;
};

struct ForeignProgram {
  std::string_view name = "graph";
  std::vector<ForeignInput> inputs;
  // How many of them the caller passes; constants of the module come behind.
  size_t arguments = 0;
  std::vector<ForeignCall> calls;
  std::vector<ForeignOutput> outputs;
  size_t outputs_offset = 0;
  // Items of lists.
  std::vector<ForeignValue> values;
  std::vector<ForeignGroup> groups;
  // Inputs and outputs have the roles of a signature.
  bool has_signature = false;
  // What the file has: statements of its graph, those that only name a result of another among them.
  size_t statements = 0;
  size_t statements_folded = 0;

  std::span<const ForeignValue> items(const ForeignValue& list) const {
    return {values.data() + list.first, list.count};
  }
  // Keeps a text that is not a part of the file.
  std::string_view Keep(std::string text) { return kept_.emplace_back(std::move(text)); }

 private:
  std::deque<std::string> kept_;
};

}  // namespace heddle
