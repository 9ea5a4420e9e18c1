#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/text/parse_graph.h"

namespace heddle {

// %a, %b = aten.op(%x, [%y], name=value, opt=%t) : (f32[2], f32[3]) @scope stream=1 keep=must_save
bool GraphParser::ParseNode() {
  scan_.SkipSpace();
  size_t begin = scan_.offset();
  if (!ParseResultNames()) return false;
  scan_.SkipSpace();
  size_t op_offset = scan_.offset();
  std::string_view op_name = scan_.TakeRawRun(CharClass::kName);
  if (op_name.empty()) return Fail(op_offset, 1, Diag::kSyntax, "expected an op, as in `aten.mm`");
  OpId op = ops_.Find(op_name);
  // Only ATen ops, and imported ones with a namespace, may be absent from the table. Any other
  // unknown name is a typing error.
  bool opaque = !op && (op_name.starts_with("aten.") || op_name.starts_with("prims.") ||
                        op_name.starts_with("foreign."));
  if (!op && !opaque) {
    return Fail(op_offset, op_name.size(), Diag::kUnknownOp, "unknown op `{}`{}", op_name,
                report_.full() ? "" : ops_.Hint(op_name));
  }
  if (op == kOpaqueOp)
    return Fail(op_offset, op_name.size(), Diag::kUnknownOp,
                "`{}` represents unknown ops; write the op's own name", op_name);
  if (opaque) {
    builder_.BeginOpaque(op_name);
  } else {
    builder_.Begin(ops_[op]);
  }
  if (!ParseArguments() || !BindArguments()) return false;
  bool typed = false;
  if (!ParseResultTypes(typed) || !ParseTail()) return false;
  if (!typed) {
    if (opaque && !result_names_.empty()) {
      return Fail(op_offset, op_name.size(), Diag::kMissingType,
                  "the result types of `{}` are not given, and the op is not in the table",
                  op_name);
    }
    AttrsId attrs = graph_.InternAttrs(builder_.attrs());
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
                  "`%{}` occurs twice among the results of one node", twice->name);
    }
  }
  return Expect('=', "after the results of a node");
}

bool GraphParser::ParseArguments() {
  arguments_.clear();
  refs_.clear();
  if (!Expect('(', "after an op")) return false;
  if (scan_.Take(')')) return true;
  bool named = false;
  do {
    char c = scan_.Peek();
    size_t offset = scan_.offset();
    bool is_list = c == '[';
    bool is_none = !is_list && c != '%' && scan_.TakeWord("none");
    scan_.set_offset(offset);
    if (!is_list && !is_none && c != '%') {
      if (!ParseNamedArgument()) return false;
      named = true;
      continue;
    }
    if (named)
      return Fail(offset, 1, Diag::kSyntax, "a positional tensor follows a named argument");
    arguments_.push_back({offset, 1, refs_.size()});
    ref_numbers_.clear();
    if (!(is_list ? ParseTensorList() : ParseTensor())) return false;
    if (is_list) {
      builder_.AddTensors(ref_numbers_);
    } else {
      builder_.AddTensor(ref_numbers_[0]);
    }
  } while (scan_.Take(','));
  return Expect(')', "or `,` after an argument");
}

bool GraphParser::ParseTensor() {
  NameRef ref{};
  bool is_none = scan_.TakeWord("none");
  if (is_none) {
    ref.offset = scan_.offset() - 4;
  } else if (!ParseName(ref)) {
    return false;
  }
  ref_numbers_.push_back(is_none ? ValueId() : ValueId(refs_.size()));
  refs_.push_back(ref);
  return true;
}

bool GraphParser::ParseTensorList() {
  scan_.Take('[');
  if (scan_.Take(']')) return true;
  do {
    if (!ParseTensor()) return false;
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
  arguments_.push_back({offset, name.size(), refs_.size()});
  char c = scan_.Peek();
  size_t value_offset = scan_.offset();
  bool is_list = false;
  if (c == '[') {
    scan_.Take('[');
    is_list = scan_.Peek() == '%';
    scan_.set_offset(value_offset);
  }
  if (c == '%' || is_list) {
    ref_numbers_.clear();
    if (!(is_list ? ParseTensorList() : ParseTensor())) return false;
    if (is_list) {
      builder_.AddTensors(ref_numbers_, name);
    } else {
      builder_.AddTensor(ref_numbers_[0], name);
    }
    return true;
  }
  std::optional<AttrValue> value = types_.ParseLiteral();
  if (value) builder_.AddAttr(name, *std::move(value));
  return value.has_value();
}

bool GraphParser::BindArguments() {
  if (std::optional<CallBuilder::Mistake> mistake = builder_.Finish()) {
    // Report missing arguments at the closing parenthesis.
    size_t offset = scan_.offset() - 1;
    size_t width = 1;
    if (mistake->argument != CallBuilder::Mistake::kEnd) {
      const Argument& written = arguments_[mistake->argument];
      offset = mistake->none ? refs_[written.first_ref + *mistake->none].offset : written.offset;
      width = mistake->none ? 4 : written.width;
    }
    report_.Report(offset, width, std::move(mistake->diagnostic));
    return false;
  }
  operand_refs_.clear();
  for (ValueId number : builder_.operands())
    operand_refs_.push_back(number ? refs_[number.index()] : NameRef{});
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
              "the node has {}, but the number of types is {}",
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
    return Fail(offset, 1, Diag::kResultCount, "the node has {}, but {} has {}",
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
  const Attrs& attrs = builder_.attrs();
  bool plain = attrs.list.empty() && attrs.list_sizes.empty() && attrs.opaque_op.empty();
  NodeSpec spec;
  spec.op = op;
  spec.operands = operands_;
  spec.attrs = plain ? AttrsTable::kEmpty : graph_.InternAttrs(attrs);
  spec.results = results_;
  spec.scope = scope_;
  spec.phase = phase_;
  spec.stream = stream_;
  graph_.Append(spec);
  source_.nodes.push_back(begin);
  return true;
}

}  // namespace heddle
