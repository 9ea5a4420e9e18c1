#include <bit>

#include "heddle/import/graph_builder_parts.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

uint64_t Words(Kind kind, uint32_t low) { return static_cast<uint64_t>(kind) << 32 | low; }

}  // namespace

const GraphBuilder::KnownCall* GraphBuilder::FindKnown(const ForeignCall& call, bool opaque) {
  has_key_ = MakeKey(call, opaque);
  const KnownCall* known = has_key_ ? known_calls_.Find(key_) : nullptr;
  if (known == nullptr) return nullptr;
  operands_.clear();
  for (ValueId number : known->operands)
    operands_.push_back(number ? key_tensors_[number.index()] : ValueId());
  return known;
}

// A number by name is that number, and to an opaque call the node that computes it. What stands for nothing, an opaque call leaves out.
inline bool GraphBuilder::AddNameToKey(const ForeignValue& value, bool opaque) {
  const Binding& binding = bindings_[value.word];
  switch (binding.kind) {
    case Binding::Kind::kTensor:
      key_.Add(Words(value.kind, graph_->type(binding.value).index()));
      key_tensors_.push_back(binding.value);
      return true;
    case Binding::Kind::kNumber: {
      bool is_operand = opaque && binding.value;
      key_.Add(Words(Kind::kInt, is_operand ? graph_->type(binding.value).index() + 1 : 0));
      key_.Add(static_cast<uint64_t>(binding.number));
      if (is_operand) key_tensors_.push_back(binding.value);
      return true;
    }
    case Binding::Kind::kNothing: key_.Add(Words(value.kind, UINT32_MAX)); return opaque;
    case Binding::Kind::kLaunched: return false;
  }
  return false;
}

// False for a call that is never like another: it asks for a tensor on its way.
bool GraphBuilder::MakeKey(const ForeignCall& call, bool opaque) {
  key_.Clear();
  key_tensors_.clear();
  key_.Add(uint64_t{opaque} << 63 | uint64_t{call.arg_count} << 32 | call.target.index());
  for (const ForeignArg& arg : program_.args_of(call)) {
    key_.Add(arg.name.index());
    bool good = arg.value.kind == Kind::kName ? AddNameToKey(arg.value, opaque)
                                              : AddToKey(arg.value, opaque);
    if (!good) return false;
  }
  if (!opaque) return true;
  // Its results are what the file states.
  key_.Add(reinterpret_cast<uintptr_t>(call.stated));
  key_.Add(call.several ? 1 : 0);
  for (const ForeignResult& result : program_.results_of(call)) {
    key_.Add(static_cast<uint64_t>(result.index));
    key_.Add(result.key.index());
    key_.Add(reinterpret_cast<uintptr_t>(result.stated));
  }
  return true;
}

bool GraphBuilder::AddToKey(const ForeignValue& value, bool opaque) {
  switch (value.kind) {
    case Kind::kName: return AddNameToKey(value, opaque);
    case Kind::kInt:
    case Kind::kFloat:
      key_.Add(Words(value.kind, 0));
      key_.Add(value.kind == Kind::kInt ? static_cast<uint64_t>(value.integer)
                                        : std::bit_cast<uint64_t>(value.number));
      return true;
    case Kind::kList:
    case Kind::kDict:
      key_.Add(Words(value.kind, value.range.count));
      for (const ForeignValue& item : program_.items(value)) {
        if (!AddToKey(item, opaque)) return false;
      }
      return true;
    case Kind::kNone:
    case Kind::kBool: key_.Add(Words(value.kind, value.boolean ? 1 : 0)); return true;
    case Kind::kString:
    case Kind::kWord: key_.Add(Words(value.kind, value.word.index())); return true;
  }
  return false;
}

ValueId GraphBuilder::Numbered(ValueId tensor) {
  if (!tensor) return tensor;
  tensors_.push_back(tensor);
  return ValueId(tensors_.size() - 1);
}

void GraphBuilder::TakeOperands() {
  operands_.clear();
  for (ValueId number : builder_->operands())
    operands_.push_back(number ? tensors_[number.index()] : ValueId());
}

void GraphBuilder::Remember(OpId op, AttrsId attrs, const std::vector<TypeId>& types,
                            int64_t number) {
  // A call for which a tensor had to be made is not like another, nor is one that names a tensor for nothing.
  if (!has_key_ || tensors_ != key_tensors_) return;
  std::span<const ValueId> operands = builder_->operands();
  known_calls_.Add(key_, {op, attrs, {operands.begin(), operands.end()}, types, number});
}

}  // namespace heddle
