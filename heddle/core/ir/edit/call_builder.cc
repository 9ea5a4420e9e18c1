#include "heddle/core/ir/edit/call_builder.h"

#include <algorithm>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// More than any schema has. The search for duplicates is quadratic, so it needs a limit.
constexpr size_t kMostNames = 64;

bool IsDefault(const Arg& arg, const AttrValue& value) {
  return arg.has_default && SameValue(value, arg.default_value);
}

// An empty list has no item kind. Its text is `[]` for every kind.
bool IsEmptyList(const AttrValue& value) {
  auto empty = [](const auto& v) {
    if constexpr (requires { v.empty(), v.begin(); }) {
      return v.empty() && !std::is_same_v<std::decay_t<decltype(v)>, std::string>;
    }
    return false;
  };
  return std::visit(empty, value);
}

}  // namespace

Attrs CanonicalAttrs(const Op& op, const Attrs& attrs) {
  Attrs out = attrs;
  out.list.clear();
  std::vector<bool> placed(attrs.list.size());
  for (const Arg& arg : op.schema.args) {
    if (!IsAttribute(arg.kind)) continue;
    for (size_t i = 0; i < attrs.list.size(); ++i) {
      if (placed[i] || attrs.list[i].name != arg.name) continue;
      std::optional<AttrValue> value = ConvertAttr(arg, attrs.list[i].value);
      if (!value) continue;
      placed[i] = true;
      if (!IsDefault(arg, *value)) out.list.push_back({arg.name, *std::move(value)});
      break;
    }
  }
  for (size_t i = 0; i < attrs.list.size(); ++i) {
    if (!placed[i]) out.list.push_back(attrs.list[i]);
  }
  return out;
}

Status CheckEach(const Op& op, const Arg& arg, const AttrValue& value, const Attrs& attrs) {
  if (arg.kind != ArgKind::kEachInt && arg.kind != ArgKind::kEachString) return Done{};
  // An op with such an argument has one list of tensors.
  size_t tensors = attrs.list_sizes.empty() ? 0 : attrs.list_sizes[0];
  size_t items = tensors;
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) items = ints->size();
  if (const auto* names = std::get_if<std::vector<std::string>>(&value)) items = names->size();
  if (items == tensors) return Done{};
  return Error(Diag::kAttrKind, "attribute `{}` of {} has {} for {}", arg.name, op.name(),
               Counted(static_cast<int64_t>(items), "item"),
               Counted(static_cast<int64_t>(tensors), "tensor"));
}

void CallBuilder::Begin(const Op* op, std::string_view name) {
  op_ = op;
  name_ = name;
  arguments_ = 0;
  tensors_.clear();
  positionals_.clear();
  named_.clear();
  given_attrs_.clear();
  mistake_.reset();
}

bool CallBuilder::CheckName(std::string_view name) {
  if (mistake_) return false;
  auto has_name = [&](const auto& given) { return given.name == name; };
  if (std::ranges::any_of(named_, has_name) || std::ranges::any_of(given_attrs_, has_name))
    return Fail(arguments_, Diag::kDuplicateAttr, "argument `{}` is given twice", name);
  if (named_.size() + given_attrs_.size() >= kMostNames)
    return Fail(arguments_, Diag::kSyntax, "a call has more than {} arguments by name", kMostNames);
  return true;
}

void CallBuilder::AddTensor(ValueId tensor, std::string_view name) {
  AddTensorArg({&tensor, 1}, false, name);
}

void CallBuilder::AddTensors(std::span<const ValueId> tensors, std::string_view name) {
  AddTensorArg(tensors, true, name);
}

void CallBuilder::AddTensorArg(std::span<const ValueId> tensors, bool is_list,
                               std::string_view name) {
  TensorArg given{arguments_, name, is_list, static_cast<uint32_t>(tensors_.size()),
                  static_cast<uint32_t>(tensors.size())};
  if (name.empty()) {
    positionals_.push_back(given);
  } else if (CheckName(name)) {
    named_.push_back(given);
  }
  ++arguments_;
  tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
}

void CallBuilder::AddAttr(std::string_view name, AttrValue value) {
  if (CheckName(name)) given_attrs_.push_back({arguments_, name, std::move(value)});
  ++arguments_;
}

std::optional<CallBuilder::Mistake> CallBuilder::Finish() {
  operands_.clear();
  attrs_.list.clear();
  attrs_.list_sizes.clear();
  attrs_.opaque_op.clear();
  attrs_.opaque_slots.clear();
  if (mistake_) return std::move(mistake_);
  if (op_ == nullptr) {
    FinishOpaque();
  } else if (BindOperands()) {
    BindAttrs();
  }
  return std::move(mistake_);
}

bool CallBuilder::BindOperands() {
  size_t next = 0;
  for (const Arg& arg : op_->schema.args) {
    if (IsOperand(arg.kind) && !BindOperand(arg, next)) return false;
  }
  if (next < positionals_.size()) {
    return Fail(positionals_[next].argument, Diag::kOperandCount, "{} takes {} by position, got {}",
                name_, Counted(static_cast<int64_t>(next), "tensor"), positionals_.size());
  }
  return CheckOperandNames();
}

// Positional arguments from `next` on have not been taken.
bool CallBuilder::BindOperand(const Arg& arg, size_t& next) {
  auto named = std::ranges::find(named_, arg.name, &TensorArg::name);
  bool optional = arg.kind == ArgKind::kOptionalTensor;
  if (named != named_.end()) {
    if (!optional && next < positionals_.size())
      return Fail(named->argument, Diag::kDuplicateAttr,
                  "argument `{}` of {} is given by name and by position", arg.name, name_);
    return BindTensors(arg, *named);
  }
  if (optional) {
    operands_.push_back(ValueId());
    return true;
  }
  if (arg.kind == ArgKind::kTensors) return BindPositionals(arg, next);
  if (next == positionals_.size()) {
    return Fail(Mistake::kEnd, Diag::kOperandCount,
                "{} takes {} as argument `{}`, which is missing", name_, Describe(arg.kind),
                arg.name);
  }
  return BindTensors(arg, positionals_[next++]);
}

// Takes all remaining positional arguments, one tensor each.
bool CallBuilder::BindPositionals(const Arg& arg, size_t& next) {
  attrs_.list_sizes.push_back(static_cast<uint32_t>(positionals_.size() - next));
  for (; next < positionals_.size(); ++next) {
    const TensorArg& given = positionals_[next];
    if (given.is_list)
      return Fail(given.argument, Diag::kOperandKind, "{} takes tensors, not a list of them",
                  name_);
    if (!tensors_[given.begin]) return FailNone(arg, given, 0);
    operands_.push_back(tensors_[given.begin]);
  }
  return true;
}

bool CallBuilder::BindTensors(const Arg& arg, const TensorArg& given) {
  bool wants_list = IsListOperand(arg.kind);
  if (given.is_list != wants_list) {
    return Fail(given.argument, Diag::kOperandKind, "`{}` of {} is {}, not {}", arg.name, name_,
                Describe(arg.kind), given.is_list ? "a list of tensors" : "a tensor");
  }
  if (wants_list) attrs_.list_sizes.push_back(given.count);
  bool may_be_none =
      arg.kind == ArgKind::kOptionalTensor || arg.kind == ArgKind::kOptionalTensorList;
  for (uint32_t i = 0; i < given.count; ++i) {
    ValueId tensor = tensors_[given.begin + i];
    if (!tensor && !may_be_none) return FailNone(arg, given, i);
    operands_.push_back(tensor);
  }
  return true;
}

bool CallBuilder::FailNone(const Arg& arg, const TensorArg& given, size_t item) {
  Fail(given.argument, Diag::kOperandKind, "`{}` of {} is {}, not none", arg.name, name_,
       Describe(arg.kind));
  mistake_->none = item;
  return false;
}

bool CallBuilder::CheckOperandNames() {
  for (const TensorArg& given : named_) {
    const Arg* arg = op_->schema.Find(given.name);
    if (arg == nullptr || !IsOperand(arg->kind))
      return Fail(given.argument, Diag::kUnknownAttr, "{} has no optional tensor `{}`", name_,
                  given.name);
  }
  return true;
}

bool CallBuilder::CheckAttrNames() {
  for (const AttrArg& given : given_attrs_) {
    const Arg* arg = op_->schema.Find(given.name);
    if (arg != nullptr && IsAttribute(arg->kind)) continue;
    std::vector<std::string_view> names;
    for (const Arg& known : op_->schema.args) {
      if (IsAttribute(known.kind)) names.push_back(known.name);
    }
    return Fail(given.argument, Diag::kUnknownAttr, "{} has no attribute `{}`{}", name_, given.name,
                NearestHint(given.name, names));
  }
  return true;
}

// The smallest integers are the codes of symbols.
bool CallBuilder::CheckSymbols(const AttrArg& given) {
  auto known = [&](int64_t value) { return !IsSymbol(value) || symbols_.Has(value); };
  bool all = true;
  if (const auto* one = std::get_if<int64_t>(&given.value)) all = known(*one);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&given.value))
    all = std::ranges::all_of(*list, known);
  return all || Fail(given.argument, Diag::kAttrKind,
                     "attribute `{}` of {} is less than {}, the least integer of a graph",
                     given.name, name_, kLastSymbol);
}

bool CallBuilder::BindAttrs() {
  // Check names first. Otherwise a misspelled required attribute would be reported as missing.
  if (!CheckAttrNames()) return false;
  for (const Arg& arg : op_->schema.args) {
    if (!IsAttribute(arg.kind)) continue;
    auto found = std::ranges::find(given_attrs_, arg.name, &AttrArg::name);
    if (found == given_attrs_.end()) {
      if (arg.has_default) continue;
      // An optional attribute without a default must be stated, even if it is none.
      return Fail(Mistake::kEnd, Diag::kMissingAttr, "{} needs attribute `{}`, {}", name_, arg.name,
                  Describe(arg.kind));
    }
    if (!CheckSymbols(*found)) return false;
    // Check before the conversion, which turns a list of equal items into one item.
    if (Status each = CheckEach(*op_, arg, found->value, attrs_); !each.ok()) {
      mistake_ = Mistake{found->argument, std::nullopt, each.diagnostics()[0]};
      return false;
    }
    std::optional<AttrValue> value = ConvertAttr(arg, found->value);
    if (!value) {
      std::string given;
      AppendAttrValue(given, found->value, mesh_, symbols_);
      return Fail(found->argument, Diag::kAttrKind, "attribute `{}` of {} is {}{}, got {}",
                  arg.name, name_, Describe(arg.kind), arg.optional ? " or none" : "", given);
    }
    if (!IsDefault(arg, *value)) attrs_.list.push_back({arg.name, *std::move(value)});
  }
  return true;
}

void CallBuilder::FinishOpaque() {
  attrs_.opaque_op = name_;
  for (const std::vector<TensorArg>* args : {&positionals_, &named_}) {
    for (const TensorArg& given : *args) {
      attrs_.opaque_slots.push_back({std::string(given.name), given.is_list, given.count});
      operands_.insert(operands_.end(), tensors_.begin() + given.begin,
                       tensors_.begin() + given.begin + given.count);
    }
  }
  for (AttrArg& given : given_attrs_) {
    if (!CheckSymbols(given)) return;
    if (IsEmptyList(given.value)) given.value = std::vector<int64_t>();
    attrs_.list.push_back({std::string(given.name), std::move(given.value)});
  }
}

}  // namespace heddle
