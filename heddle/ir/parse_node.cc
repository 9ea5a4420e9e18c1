#include <algorithm>

#include "heddle/base/text.h"
#include "heddle/ir/parse_graph.h"

namespace heddle {

// %a, %b = aten.op(%x, [%y, %z], name=value, opt=%t) : (f32[2], f32[3]) @scope stream=1 keep=must_save
bool GraphParser::ParseNode() {
  scan_.SkipSpace();
  size_t begin = scan_.offset();
  if (!ParseResultNames()) return false;
  scan_.SkipSpace();
  size_t op_offset = scan_.offset();
  std::string_view op_name = scan_.TakeRawRun(CharClass::kName);
  if (op_name.empty()) return Fail(op_offset, 1, Diag::kSyntax, "expected an op, as in `aten.mm`");
  OpId op = ops_.Find(op_name);
  // Only ATen is larger than the table; everywhere else an unknown name is a slip.
  bool opaque = !op && (op_name.starts_with("aten.") || op_name.starts_with("prims."));
  if (!op && !opaque) {
    return Fail(op_offset, op_name.size(), Diag::kUnknownOp, "unknown op `{}`{}", op_name,
                ops_.Hint(op_name));
  }
  if (op == kOpaqueOp)
    return Fail(op_offset, op_name.size(), Diag::kUnknownOp,
                "`{}` stands for unknown ops; write the op's own name", op_name);
  if (!ParseArguments()) return false;
  if (opaque ? !BindOpaque(op_name) : !BindKnown(ops_[op])) return false;
  bool typed = false;
  if (!ParseResultTypes(typed) || !ParseTail()) return false;
  if (!typed) {
    if (opaque && !result_names_.empty()) {
      return Fail(op_offset, op_name.size(), Diag::kMissingType,
                  "the result types of `{}` are not given, and the op is not in the table",
                  op_name);
    }
    AttrsId attrs = graph_.InternAttrs(attrs_);
    if (!opaque && !InferResultTypes(ops_[op], attrs)) return false;
  }
  return FinishNode(begin, opaque ? kOpaqueOp : op);
}

bool GraphParser::ParseResultNames() {
  result_names_.clear();
  if (scan_.Peek() != '%') return true;
  do {
    NameRef ref{};
    if (!ParseName(ref)) return false;
    if (!CheckNewName(ref)) return false;
    result_names_.push_back(ref);
  } while (scan_.Take(','));
  if (result_names_.size() > 1) {
    std::vector<NameRef> sorted = result_names_;
    std::ranges::stable_sort(sorted, {}, &NameRef::name);
    auto twice = std::ranges::adjacent_find(sorted, {}, &NameRef::name);
    if (twice != sorted.end()) {
      return Fail(twice[1].offset, twice[1].name.size() + 1, Diag::kDuplicateName,
                  "`%{}` stands twice among the results of one node", twice->name);
    }
  }
  return Expect('=', "after the results of a node");
}

bool GraphParser::ParseArguments() {
  refs_.clear();
  positionals_.clear();
  named_operands_.clear();
  written_.clear();
  if (!Expect('(', "after an op")) return false;
  if (scan_.Take(')')) return true;
  do {
    char c = scan_.Peek();
    size_t offset = scan_.offset();
    auto begin = static_cast<uint32_t>(refs_.size());
    bool is_list = c == '[';
    if (is_list) {
      if (!ParseOperandList(refs_)) return false;
    } else if (c == '%' || scan_.TakeWord("none")) {
      scan_.set_offset(offset);
      if (!ParseOperand(refs_)) return false;
    } else {
      if (!ParseNamedArgument()) return false;
      continue;
    }
    if (!written_.empty() || !named_operands_.empty()) {
      return Fail(offset, 1, Diag::kSyntax,
                  "a tensor by position stands after an argument by name");
    }
    positionals_.push_back({offset, is_list, begin, static_cast<uint32_t>(refs_.size()) - begin});
  } while (scan_.Take(','));
  return Expect(')', "or `,` after an argument");
}

bool GraphParser::ParseOperand(std::vector<NameRef>& into) {
  NameRef ref{};
  if (scan_.TakeWord("none")) {
    ref.offset = scan_.offset() - 4;
  } else if (!ParseName(ref)) {
    return false;
  }
  into.push_back(ref);
  return true;
}

bool GraphParser::ParseOperandList(std::vector<NameRef>& into) {
  scan_.Take('[');
  if (scan_.Take(']')) return true;
  do {
    if (!ParseOperand(into)) return false;
  } while (scan_.Take(','));
  return Expect(']', "or `,` in a list of tensors");
}

bool GraphParser::ParseNamedArgument() {
  scan_.SkipSpace();
  size_t offset = scan_.offset();
  std::string_view name = scan_.TakeRawRun(CharClass::kWord);
  if (name.empty() || !scan_.Take('=')) {
    return Fail(offset, std::max<size_t>(name.size(), 1), Diag::kSyntax,
                "expected a tensor, or an attribute as in `dim=0`");
  }
  bool twice =
      std::ranges::any_of(written_, [&](const WrittenAttr& a) { return a.name == name; }) ||
      std::ranges::any_of(named_operands_, [&](const NamedOperand& o) { return o.name == name; });
  if (twice)
    return Fail(offset, name.size(), Diag::kDuplicateAttr, "argument `{}` is given twice", name);
  // More than any schema has; without a limit the look for duplicates would be quadratic.
  if (written_.size() + named_operands_.size() >= 64)
    return Fail(offset, name.size(), Diag::kSyntax, "a call has more than 64 arguments by name");
  char c = scan_.Peek();
  size_t value_offset = scan_.offset();
  bool is_list = false;
  if (c == '[') {
    scan_.Take('[');
    is_list = scan_.Peek() == '%';
    scan_.set_offset(value_offset);
  }
  if (c == '%' || is_list) {
    NamedOperand& operand = named_operands_.emplace_back(NamedOperand{offset, name, is_list, {}});
    return is_list ? ParseOperandList(operand.values) : ParseOperand(operand.values);
  }
  std::optional<AttrValue> value = types_.ParseLiteral();
  if (!value) return false;
  written_.push_back({offset, name, *std::move(value)});
  return true;
}

bool GraphParser::BindKnown(const Op& op) {
  attrs_.list.clear();
  attrs_.list_sizes.clear();
  attrs_.opaque_op.clear();
  attrs_.opaque_slots.clear();
  return BindOperands(op) && BindAttrs(op);
}

bool GraphParser::BindOperands(const Op& op) {
  operand_refs_.clear();
  size_t next = 0;
  size_t named = 0;
  for (const Arg& arg : op.schema.args) {
    if (!IsOperand(arg.kind)) continue;
    if (arg.kind == ArgKind::kOptionalTensor) {
      auto found = std::ranges::find_if(named_operands_,
                                        [&](const NamedOperand& o) { return o.name == arg.name; });
      if (found == named_operands_.end()) {
        operand_refs_.push_back({});
        continue;
      }
      if (found->is_list)
        return Fail(found->offset, found->name.size(), Diag::kOperandKind,
                    "`{}` of {} is a tensor, not a list of them", arg.name, op.name());
      ++named;
      operand_refs_.push_back(found->values[0]);
      continue;
    }
    if (arg.kind == ArgKind::kTensors) {
      auto count = static_cast<uint32_t>(positionals_.size() - next);
      for (; next < positionals_.size(); ++next) {
        if (positionals_[next].is_list)
          return Fail(positionals_[next].offset, 1, Diag::kOperandKind,
                      "{} takes tensors, not a list of them", op.name());
        operand_refs_.push_back(refs_[positionals_[next].begin]);
      }
      attrs_.list_sizes.push_back(count);
      continue;
    }
    if (next == positionals_.size()) {
      return Fail(scan_.offset() - 1, 1, Diag::kOperandCount,
                  "{} takes {} as argument `{}`, which is missing", op.name(), Describe(arg.kind),
                  arg.name);
    }
    const Positional& given = positionals_[next++];
    bool wants_list = IsListOperand(arg.kind);
    if (given.is_list != wants_list) {
      return Fail(given.offset, 1, Diag::kOperandKind, "`{}` of {} is {}, not {}", arg.name,
                  op.name(), Describe(arg.kind), given.is_list ? "a list of tensors" : "a tensor");
    }
    if (wants_list) attrs_.list_sizes.push_back(given.count);
    for (uint32_t i = 0; i < given.count; ++i) {
      const NameRef& ref = refs_[given.begin + i];
      if (ref.name.empty() && arg.kind != ArgKind::kOptionalTensorList) {
        return Fail(ref.offset, 4, Diag::kOperandKind, "`{}` of {} is {}, not none", arg.name,
                    op.name(), Describe(arg.kind));
      }
      operand_refs_.push_back(ref);
    }
  }
  if (next < positionals_.size()) {
    return Fail(positionals_[next].offset, 1, Diag::kOperandCount,
                "{} takes {} by position, got {}", op.name(), Counted(next, "tensor"),
                positionals_.size());
  }
  if (named < named_operands_.size()) {
    for (const NamedOperand& operand : named_operands_) {
      const Arg* arg = op.schema.Find(operand.name);
      if (arg != nullptr && arg->kind == ArgKind::kOptionalTensor) continue;
      return Fail(operand.offset, operand.name.size(), Diag::kUnknownAttr,
                  "{} has no optional tensor `{}`", op.name(), operand.name);
    }
  }
  return true;
}

bool GraphParser::BindAttrs(const Op& op) {
  // Unknown names first: a slip in a required attribute's name would otherwise be called missing.
  for (const WrittenAttr& attr : written_) {
    const Arg* arg = op.schema.Find(attr.name);
    if (arg != nullptr && IsAttribute(arg->kind)) continue;
    std::vector<std::string_view> names;
    for (const Arg& known : op.schema.args) {
      if (IsAttribute(known.kind)) names.push_back(known.name);
    }
    return Fail(attr.offset, attr.name.size(), Diag::kUnknownAttr, "{} has no attribute `{}`{}",
                op.name(), attr.name, NearestHint(attr.name, names));
  }
  for (const Arg& arg : op.schema.args) {
    if (!IsAttribute(arg.kind)) continue;
    auto found =
        std::ranges::find_if(written_, [&](const WrittenAttr& a) { return a.name == arg.name; });
    if (found == written_.end()) {
      if (arg.has_default) continue;
      // An optional attribute without a default must still be stated; none is a statement.
      return Fail(scan_.offset() - 1, 1, Diag::kMissingAttr, "{} needs attribute `{}`, {}",
                  op.name(), arg.name, Describe(arg.kind));
    }
    std::optional<AttrValue> value = ConvertAttr(arg, found->value);
    if (!value) {
      std::string given;
      AppendAttrValue(given, found->value, module_.mesh, graph_.types().symbols());
      return Fail(found->offset, found->name.size(), Diag::kAttrKind,
                  "attribute `{}` of {} is {}{}, got {}", arg.name, op.name(), Describe(arg.kind),
                  arg.optional ? " or none" : "", given);
    }
    if (arg.has_default && SameValue(*value, arg.default_value)) continue;
    attrs_.list.push_back({arg.name, *std::move(value)});
  }
  return true;
}

bool GraphParser::BindOpaque(std::string_view name) {
  attrs_ = {};
  attrs_.opaque_op = name;
  operand_refs_.clear();
  for (const Positional& given : positionals_) {
    attrs_.opaque_slots.push_back({"", given.is_list, given.count});
    for (uint32_t i = 0; i < given.count; ++i) operand_refs_.push_back(refs_[given.begin + i]);
  }
  for (const NamedOperand& given : named_operands_) {
    attrs_.opaque_slots.push_back(
        {std::string(given.name), given.is_list, static_cast<uint32_t>(given.values.size())});
    operand_refs_.insert(operand_refs_.end(), given.values.begin(), given.values.end());
  }
  for (WrittenAttr& attr : written_)
    attrs_.list.push_back({std::string(attr.name), std::move(attr.value)});
  return true;
}

bool GraphParser::ParseResultTypes(bool& given) {
  result_types_.clear();
  given = scan_.Take(':');
  if (!given) return true;
  bool several = scan_.Take('(');
  do {
    std::optional<PlacedType> type = types_.ParseType();
    if (!type) return false;
    result_types_.push_back(*type);
  } while (several && scan_.Take(','));
  if (several && !Expect(')', "after the result types")) return false;
  if (result_types_.size() == result_names_.size()) return true;
  return Fail(scan_.offset() - 1, 1, Diag::kResultCount,
              "the node names {}, the number of types is {}",
              Counted(result_names_.size(), "result"), result_types_.size());
}

bool GraphParser::InferResultTypes(const Op& op, AttrsId attrs) {
  operands_.clear();
  for (const NameRef& ref : operand_refs_) {
    ValueId id = ref.name.empty() ? ValueId() : graph_.FindValue(ref.name);
    if (!ref.name.empty() && (!id || !graph_[id].type)) {
      return Fail(ref.offset, ref.name.size() + 1, Diag::kMissingType,
                  "the result types of {} are not given, and the type of `%{}` is not known here",
                  op.name(), ref.name);
    }
    operands_.push_back(id);
  }
  SymbolTable& symbols = graph_.types().symbols();
  OpArgs args(op, graph_.attrs_table()[attrs], module_.mesh, symbols,
              OperandTypes(graph_, operands_));
  size_t offset = result_names_.empty() ? scan_.offset() : result_names_[0].offset;
  Result<Types> types = InferTypes(args);
  if (!types.ok()) {
    return Fail(offset, 1, types.diagnostics()[0].kind, "{}: {}", op.name(),
                types.diagnostics()[0].message);
  }
  if (types->size() != result_names_.size()) {
    return Fail(offset, 1, Diag::kResultCount, "the node names {}, {} gives {}",
                Counted(result_names_.size(), "result"), op.name(), types->size());
  }
  for (const Type& type : *types) result_types_.push_back({graph_.types().Intern(type)});
  return true;
}

bool GraphParser::ParseTail() {
  scope_ = ScopeId();
  stream_ = 0;
  keeps_.clear();
  if (scan_.Take('@') && !ParseScope(scope_)) return false;
  if (scan_.TakeWord("stream")) {
    if (!Expect('=', "after `stream`")) return false;
    std::optional<int64_t> stream = scan_.TakeInt();
    if (!stream || *stream < 0 || *stream > 255)
      return Fail(scan_.offset(), 1, Diag::kSyntax, "expected a stream from 0 to 255");
    stream_ = static_cast<uint8_t>(*stream);
  }
  return !scan_.TakeWord("keep") || ParseKeep();
}

bool GraphParser::ParseKeep() {
  if (!Expect('=', "after `keep`")) return false;
  bool several = scan_.Take('[');
  do {
    scan_.SkipSpace();
    size_t offset = scan_.offset();
    std::string_view word = scan_.TakeRawRun(CharClass::kWord);
    std::optional<Keep> keep = heddle::ParseKeep(word);
    if (!keep) {
      static constexpr std::string_view kKeeps[] = {"default", "must_save", "must_recompute",
                                                    "prefer_recompute", "offload"};
      return Fail(offset, word.size(), Diag::kBadKeep, "`{}` is not a keep decision{}", word,
                  NearestHint(word, kKeeps));
    }
    keeps_.push_back(*keep);
  } while (several && scan_.Take(','));
  if (several && !Expect(']', "after the keep decisions")) return false;
  if (keeps_.size() == result_names_.size()) return true;
  return Fail(scan_.offset() - 1, 1, Diag::kBadKeep,
              "the node has {}, the number of keep decisions is {}",
              Counted(result_names_.size(), "result"), keeps_.size());
}

bool GraphParser::FinishNode(size_t begin, OpId op) {
  operands_.clear();
  for (const NameRef& ref : operand_refs_) {
    size_t pool_index = graph_.operand_pool_.size() + operands_.size();
    operands_.push_back(ref.name.empty() ? ValueId() : Resolve(ref, pool_index));
  }
  results_.clear();
  for (size_t i = 0; i < result_names_.size(); ++i) {
    results_.push_back({.type = result_types_[i].type,
                        .name = result_names_[i].name,
                        .placement = result_types_[i].placement,
                        .keep = keeps_.empty() ? Keep::kDefault : keeps_[i]});
  }
  bool plain = attrs_.list.empty() && attrs_.list_sizes.empty() && attrs_.opaque_op.empty();
  NodeSpec spec;
  spec.op = op;
  spec.operands = operands_;
  spec.attrs = plain ? AttrsTable::kEmpty : graph_.InternAttrs(attrs_);
  spec.results = results_;
  spec.scope = scope_;
  spec.phase = phase_;
  spec.stream = stream_;
  graph_.Append(spec);
  source_.nodes.push_back(begin);
  return true;
}

}  // namespace heddle
