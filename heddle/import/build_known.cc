#include <bit>

#include "heddle/import/graph_builder_parts.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

uint64_t Words(Kind kind, uint32_t low) { return static_cast<uint64_t>(kind) << 32 | low; }

}  // namespace

const GraphBuilder::KnownCall* GraphBuilder::FindKnown(const ForeignCall& call,
                                                       const Type* stated) {
  has_key_ = MakeKey(call, stated);
  const KnownCall* known = has_key_ ? known_calls_.Find(key_) : nullptr;
  if (known == nullptr) return nullptr;
  operands_.clear();
  for (ValueId number : known->operands)
    operands_.push_back(number ? key_tensors_[number.index()] : ValueId());
  return known;
}

inline bool GraphBuilder::AddNameToKey(const ForeignValue& value) {
  const Binding& binding = bindings_[value.word];
  if (binding.kind != Binding::Kind::kTensor) return false;
  key_.Add(Words(value.kind, graph_->type(binding.value).index()));
  key_tensors_.push_back(binding.value);
  return true;
}

// False for a call that is never like another: it asks for a number that is computed, or for a tensor on its way.
bool GraphBuilder::MakeKey(const ForeignCall& call, const Type* stated) {
  key_.Clear();
  key_tensors_.clear();
  key_.Add(call.target.index());
  for (const ForeignArg& arg : program_.args_of(call)) {
    key_.Add(arg.name.index());
    bool good = arg.value.kind == Kind::kName ? AddNameToKey(arg.value) : AddToKey(arg.value);
    if (!good) return false;
  }
  // Arguments take more words than one, so this is none.
  if (stated != nullptr) key_.Add(reinterpret_cast<uintptr_t>(stated));
  return true;
}

bool GraphBuilder::AddToKey(const ForeignValue& value) {
  switch (value.kind) {
    case Kind::kName: return AddNameToKey(value);
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
        if (!AddToKey(item)) return false;
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

void GraphBuilder::Remember(OpId op, AttrsId attrs, const std::vector<TypeId>& types) {
  // A call for which a tensor had to be made is not like another, nor is one that names a tensor for nothing.
  if (!has_key_ || tensors_ != key_tensors_) return;
  std::span<const ValueId> operands = builder_->operands();
  known_calls_.Add(key_, {op, attrs, {operands.begin(), operands.end()}, types});
}

}  // namespace heddle
