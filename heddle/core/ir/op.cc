#include "heddle/core/ir/op.h"

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr std::string_view kEffectNames[] = {"pure", "view", "update", "comm", "random", "opaque"};

Bytes TypeBytes(const Type& type, const SymbolTable& symbols) {
  if (type.async) {
    Bytes sum;
    for (const Type& element : type.elements) sum += TypeBytes(element, symbols);
    return sum;
  }
  return {CheckedBytes(symbols, type.dims, type.dtype).value_or(0)};
}

}  // namespace

std::string_view Name(Effect effect) { return kEffectNames[static_cast<size_t>(effect)]; }

std::span<const Type> OpArgs::list(size_t n) const {
  size_t at = 0;
  size_t seen = 0;
  for (const Arg& arg : op_.schema.args) {
    if (!IsOperand(arg.kind)) continue;
    size_t count = IsListOperand(arg.kind) ? attrs_.list_sizes[seen] : 1;
    if (IsListOperand(arg.kind) && seen++ == n) return {operands_.data() + at, count};
    at += count;
  }
  HEDDLE_CHECK(false, fmt::format("{} has no tensor list {}", op_.name(), n));
}

const AttrValue& OpArgs::attr(std::string_view name) const {
  if (const AttrValue* value = attrs_.Find(name)) return *value;
  const Arg* arg = op_.schema.Find(name);
  HEDDLE_CHECK(arg != nullptr && arg->has_default,
               fmt::format("{} has no attribute {}", op_.name(), name));
  return arg->default_value;
}

const std::vector<int64_t>& OpArgs::Ints(std::string_view name) const {
  static const std::vector<int64_t> kEmpty;
  const AttrValue& value = attr(name);
  if (std::holds_alternative<std::monostate>(value)) return kEmpty;
  return std::get<std::vector<int64_t>>(value);
}

OpTable::OpTable(std::span<const Entry> entries) {
  for (const Entry& entry : entries) {
    Result<Schema> schema = ParseSchema(entry.def->schema);
    HEDDLE_CHECK(schema.ok(), Format(schema.diagnostics()));
    HEDDLE_CHECK(!Find(schema->name), fmt::format("two ops are called {}", schema->name));
    uint64_t hash = Hash64(schema->name);
    OpId id = ops_.Add({entry.def, entry.family, *std::move(schema)});
    index_.Insert(hash, id.index());
  }
}

OpId OpTable::Find(std::string_view name) const {
  uint32_t found =
      index_.Find(Hash64(name), [&](uint32_t n) { return ops_[OpId(n)].name() == name; });
  return found == HashIndex::kNone ? OpId() : OpId(found);
}

std::string OpTable::Hint(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Op& op : ops_) names.push_back(op.name());
  return NearestHint(name, names);
}

namespace {
Status CheckRepresentable(const OpArgs& args, const Types& types) {
  for (const Type& type : types) {
    HEDDLE_RETURN_IF_ERROR(CheckRepresentable(args, type.elements));
    for (const Dim& dim : type.dims) {
      if (dim < 0 && !IsSymbol(dim)) {
        return Error(Diag::kBadType, "dimension {} of the result would have size {}",
                     &dim - type.dims.data(), dim);
      }
    }
    if (!CheckedBytes(args.symbols(), type.dims, type.dtype)) {
      return Error(Diag::kSizeOverflow, "the bytes of the result exceed 2^63 - 1");
    }
  }
  return Done{};
}
}  // namespace

Result<Types> InferTypes(const OpArgs& args) {
  HEDDLE_TRY(Types types, args.op().def->shape(args));
  // Checked here once, so that rules need no overflow checks for their results.
  HEDDLE_RETURN_IF_ERROR(CheckRepresentable(args, types));
  return types;
}

Result<Factors> InferFactors(const OpArgs& args, const Types& results) {
  const FactorRule& rule = args.op().def->factors;
  if (rule.compute == nullptr) return FactorsFromText(rule.text, args.operands(), results);
  HEDDLE_TRY(Factors factors, rule.compute(args, results));
  AddLinear(factors, rule.linear);
  return factors;
}

Work InferWork(const OpArgs& args, const Types& results) {
  const OpDef& def = *args.op().def;
  if (def.work != nullptr) return def.work(args, results);
  if (def.effect == Effect::kView) return {};
  Work work;
  for (const Type& type : args.operands()) work.read += TypeBytes(type, args.symbols());
  for (const Type& type : results) work.written += TypeBytes(type, args.symbols());
  if (!results.empty() && !results[0].is_none() && !results[0].async) {
    work.flops = {TypeBytes(results[0], args.symbols()).value / ItemSize(results[0].dtype)};
  }
  return work;
}

}  // namespace heddle
