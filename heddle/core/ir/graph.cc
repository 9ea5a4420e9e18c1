#include "heddle/core/ir/graph.h"

#include <algorithm>
#include <iterator>

#include "heddle/core/base/pool.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr std::string_view kPhases[] = {"fwd", "bwd", "opt"};
constexpr std::string_view kKeeps[] = {"default", "must_save", "must_recompute", "prefer_recompute",
                                       "offload"};
constexpr std::string_view kInputRoles[] = {"",     "param", "buffer",  "opt",  "batch",
                                            "seed", "saved", "tangent", "hyper"};
constexpr std::string_view kOutputRoles[] = {"", "loss", "grad", "update", "saved", "metric"};

template <typename Enum, size_t N>
std::optional<Enum> Parse(const std::string_view (&names)[N], std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (!name.empty() && names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view Name(Phase phase) { return kPhases[static_cast<size_t>(phase)]; }
std::string_view Name(Keep keep) { return kKeeps[static_cast<size_t>(keep)]; }
std::string_view Name(InputRole role) { return kInputRoles[static_cast<size_t>(role)]; }
std::string_view Name(OutputRole role) { return kOutputRoles[static_cast<size_t>(role)]; }
std::optional<Phase> ParsePhase(std::string_view name) { return Parse<Phase>(kPhases, name); }
std::optional<Keep> ParseKeep(std::string_view name) { return Parse<Keep>(kKeeps, name); }
std::optional<InputRole> ParseInputRole(std::string_view name) {
  return Parse<InputRole>(kInputRoles, name);
}
std::optional<OutputRole> ParseOutputRole(std::string_view name) {
  return Parse<OutputRole>(kOutputRoles, name);
}

Keep StrongerKeep(Keep a, Keep b) {
  auto strength = [](Keep keep) {
    switch (keep) {
      case Keep::kDefault: return 0;
      case Keep::kPreferRecompute: return 1;
      case Keep::kMustRecompute: return 2;
      case Keep::kOffload: return 3;
      case Keep::kMustSave: return 4;
    }
    return 0;
  };
  return strength(a) >= strength(b) ? a : b;
}

ValueId Graph::FindValue(std::string_view name) const {
  NameId id = names_.Find(name);
  return id ? value_of_name_[id] : ValueId();
}

const Input* Graph::FindParam(int64_t index) const {
  // Parameters are usually in order, after few other inputs. So the search starts at `index`.
  auto is_param = [&](const Input& input) {
    return input.role == InputRole::kParam && input.index == index;
  };
  auto middle = inputs_.begin() + std::clamp<int64_t>(index, 0, std::ssize(inputs_));
  auto found = std::find_if(middle, inputs_.end(), is_param);
  if (found == inputs_.end()) found = std::find_if(inputs_.begin(), middle, is_param);
  return found == inputs_.end() || !is_param(*found) ? nullptr : &*found;
}

ValueId Graph::AddValue(const ResultSpec& spec, NodeId producer) {
  NameId name = names_.Intern(spec.name);
  if (value_of_name_.size() < names_.size()) value_of_name_.resize(names_.size());
  if (value_of_name_[name]) {
    name = names_.Intern(FreshName(std::string(names_[name])));
    value_of_name_.resize(names_.size());
  }
  ValueId id = values_.Add({spec.type, spec.placement, producer, name, spec.keep});
  value_of_name_[name] = id;
  return id;
}

ValueId Graph::AddInput(Input input, TypeId type, std::string_view name, PlacementId placement) {
  HEDDLE_CHECK(nodes_.size() == 0, "an input was added after a node");
  input.value = AddValue({.type = type, .name = name, .placement = placement}, NodeId());
  inputs_.push_back(std::move(input));
  return inputs_.back().value;
}

NodeId Graph::Append(const NodeSpec& spec) {
  NodeId id(nodes_.size());
  Node node;
  node.op = spec.op;
  node.phase = spec.phase;
  node.stream = spec.stream;
  node.scope = spec.scope;
  node.attrs = spec.attrs;
  node.first_operand = static_cast<uint32_t>(operand_pool_.size());
  node.operand_count = static_cast<uint32_t>(spec.operands.size());
  node.first_result = ValueId(values_.size());
  node.result_count = static_cast<uint32_t>(spec.results.size());
  AppendToPool(operand_pool_, spec.operands);
  // A name stored in the graph moves when the name of another result is added.
  auto borrowed = [&](const ResultSpec& result) { return names_.Holds(result.name); };
  if (spec.results.size() > 1 && std::ranges::any_of(spec.results, borrowed)) {
    std::vector<std::string> names;
    for (const ResultSpec& result : spec.results) names.emplace_back(result.name);
    for (size_t i = 0; i < names.size(); ++i) {
      ResultSpec result = spec.results[i];
      result.name = names[i];
      AddValue(result, id);
    }
  } else {
    for (const ResultSpec& result : spec.results) AddValue(result, id);
  }
  return nodes_.Add(node);
}

void Graph::ReserveNodes(size_t nodes) {
  nodes_.reserve(nodes);
  values_.reserve(values_.size() + nodes + nodes / 4);
  operand_pool_.reserve(2 * nodes);
}

void Graph::ReserveNames(size_t names) {
  names_.Reserve(names, 0);
  value_of_name_.reserve(names);
}

std::string Graph::FreshName(std::string_view base) {
  if (!FindValue(base)) return std::string(base);
  NameId key = fresh_bases_.Intern(base);
  if (key.index() == fresh_next_.size()) fresh_next_.push_back(1);
  std::string name;
  do {
    name = base;
    name += '_';
    AppendInt(name, fresh_next_[key.index()]++);
  } while (FindValue(name));
  return name;
}

std::vector<Type> OperandTypes(const Graph& graph, std::span<const ValueId> operands) {
  std::vector<Type> types;
  types.reserve(operands.size());
  for (ValueId id : operands) types.push_back(id ? graph.types()[graph.type(id)] : Type());
  return types;
}

}  // namespace heddle
