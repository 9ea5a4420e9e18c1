#include "heddle/core/ir/text/parse_graph.h"

#include <algorithm>

#include "heddle/core/base/text.h"

namespace heddle {

bool GraphParser::Expect(char c, std::string_view where) {
  if (scan_.Take(c)) return true;
  return Fail(scan_.offset(), 1, Diag::kSyntax, "expected `{}` {}", c, where);
}

bool GraphParser::ParseName(NameRef& ref) {
  scan_.SkipSpace();
  ref.offset = scan_.offset();
  if (scan_.Take('%')) {
    ref.name = scan_.TakeRawRun(CharClass::kName);
    if (!ref.name.empty()) return true;
  }
  return Fail(ref.offset, 1, Diag::kSyntax, "expected a value, as in `%x`");
}

bool GraphParser::Parse(size_t expected_nodes) {
  source_.header = scan_.offset();
  if (!ParseSignature()) {
    // Without inputs, every use would be reported as undefined. Only skip to the end of the graph.
    size_t brace = scan_.text().find("\n}", scan_.offset());
    if (brace == std::string_view::npos) return false;
    scan_.set_offset(brace + 2);
    return true;
  }
  graph_.ReserveNodes(expected_nodes);
  graph_.ReserveNames(graph_.value_count() + expected_nodes + expected_nodes / 4);
  bool closed = ParseBody();
  graph_.SetRegions(std::move(regions_));
  ResolvePending();
  return closed;
}

bool GraphParser::ParseSignature() {
  scan_.TakeWord("graph");
  if (!Expect('@', "and a name after `graph`")) return false;
  std::string_view name = scan_.TakeRun(CharClass::kName);
  if (name.empty()) return Fail(scan_.offset(), 1, Diag::kSyntax, "expected the name of the graph");
  graph_.set_name(std::string(name));
  if (!Expect('(', "before the inputs")) return false;
  if (!scan_.Take(')')) {
    do {
      if (!ParseInput()) return false;
    } while (scan_.Take(','));
    if (!Expect(')', "or `,` after an input")) return false;
  }
  if (!scan_.TakeSymbol("->"))
    return Fail(scan_.offset(), 1, Diag::kSyntax, "expected `->` after the inputs");
  if (!Expect('(', "before the outputs")) return false;
  if (!scan_.Take(')')) {
    do {
      if (!ParseOutput()) return false;
    } while (scan_.Take(','));
    if (!Expect(')', "or `,` after an output")) return false;
  }
  return Expect('{', "before the nodes");
}

bool GraphParser::ParseInput() {
  NameRef ref{};
  if (!ParseName(ref) || !Expect(':', "and a type after an input")) return false;
  if (!CheckNewName(ref)) return false;
  std::optional<PlacedType> type = types_.ParseType();
  if (!type) return false;
  Input input;
  std::string_view word = scan_.TakeRun(CharClass::kWord);
  size_t role_offset = scan_.offset() - word.size();
  // `unit` and `of` may follow a plain input directly.
  if (word == "unit" || word == "of") {
    scan_.set_offset(role_offset);
  } else if (!word.empty()) {
    std::optional<InputRole> role = ParseInputRole(word);
    if (!role) {
      static constexpr std::string_view kRoles[] = {"param", "buffer", "opt",     "batch",
                                                    "seed",  "saved",  "tangent", "hyper"};
      return Fail(role_offset, word.size(), Diag::kUnknownRole,
                  "`{}` is not the role of an input{}", word, NearestHint(word, kRoles));
    }
    input.role = *role;
    if (*role == InputRole::kParam || *role == InputRole::kOpt) {
      std::optional<int64_t> index = scan_.TakeInt();
      if (!index || *index < 0) {
        return Fail(scan_.offset(), 1, Diag::kSyntax,
                    "expected the number of a parameter after `{}`", word);
      }
      input.index = *index;
    }
  }
  if (scan_.Peek() == '"') {
    std::optional<std::string> label = scan_.TakeQuoted();
    if (!label)
      return Fail(scan_.offset(), 1, Diag::kSyntax,
                  "a string is not closed on its line, or has an unknown escape");
    input.label = *std::move(label);
  }
  if (scan_.TakeWord("unit")) {
    std::optional<std::string> unit = scan_.TakeQuoted();
    if (!unit) return Fail(scan_.offset(), 1, Diag::kSyntax, "expected a quoted name after `unit`");
    input.unit = *std::move(unit);
  }
  if (!ParseGlobal(input.global)) return false;
  source_.inputs.push_back(ref.offset);
  graph_.AddInput(std::move(input), type->type, ref.name, type->placement);
  return true;
}

bool GraphParser::ParseGlobal(GlobalType& global) {
  if (!scan_.TakeWord("of")) return true;
  std::optional<PlacedType> type = types_.ParseGlobalType();
  if (!type) return false;
  global = {type->type, type->placement};
  return true;
}

bool GraphParser::ParseOutput() {
  scan_.SkipSpace();
  source_.outputs.push_back(scan_.offset());
  Output output;
  if (scan_.Peek() != '%') {
    size_t begin = scan_.offset();
    std::string_view word = scan_.TakeRun(CharClass::kWord);
    std::optional<OutputRole> role = ParseOutputRole(word);
    if (!role) {
      static constexpr std::string_view kRoles[] = {"loss", "grad", "update", "saved", "metric"};
      return Fail(begin, word.size(), Diag::kUnknownRole, "`{}` is not the role of an output{}",
                  word, NearestHint(word, kRoles));
    }
    output.role = *role;
    if (*role == OutputRole::kGrad) {
      std::optional<int64_t> index = scan_.TakeInt();
      if (!index || *index < 0)
        return Fail(scan_.offset(), 1, Diag::kSyntax,
                    "expected the number of a parameter after `grad`");
      output.index = *index;
    }
    if (scan_.Peek() == '"') {
      std::optional<std::string> label = scan_.TakeQuoted();
      if (!label)
        return Fail(scan_.offset(), 1, Diag::kSyntax,
                    "a string is not closed on its line, or has an unknown escape");
      output.label = *std::move(label);
    }
    if (*role == OutputRole::kUpdate) {
      NameRef target{};
      if (!ParseName(target)) return false;
      output.target = graph_.FindValue(target.name);
      if (!output.target) {
        return Fail(target.offset, target.name.size() + 1, Diag::kLostRole,
                    "`update` of `%{}`, which is not an input", target.name);
      }
      if (!scan_.TakeSymbol("->"))
        return Fail(scan_.offset(), 1, Diag::kSyntax, "expected `->` and the new value");
    }
  }
  NameRef ref{};
  if (!ParseName(ref) || !ParseGlobal(output.global)) return false;
  // Values of nodes are not known yet; ResolvePending resolves them.
  pending_.push_back({ref, true, graph_.outputs().size()});
  graph_.AddOutput(std::move(output));
  return true;
}

bool GraphParser::ParseBody() {
  for (;;) {
    if (scan_.Take('}')) return true;
    if (scan_.AtEnd())
      return Fail(scan_.offset(), 1, Diag::kSyntax,
                  "graph `@{}` is not closed; expected a node or `}}`", graph_.name());
    size_t begin = scan_.offset();
    if (scan_.Peek() != '%') {
      std::string_view word = scan_.TakeRun(CharClass::kWord);
      std::optional<Phase> phase = ParsePhase(word);
      if (phase && scan_.Take(':')) {
        phase_ = *phase;
        continue;
      }
      if (word == "region") {
        if (!ParseRegion(begin)) Recover(begin);
        continue;
      }
      scan_.set_offset(begin);
    }
    if (!ParseNode()) {
      Poison(begin);
      Recover(begin);
    }
  }
}

// region @layers.0.moe local=[dp] why=expert
bool GraphParser::ParseRegion(size_t begin) {
  if (graph_.node_count() > 0)
    return Fail(begin, 6, Diag::kSyntax, "a region comes after a node; move it before all nodes");
  Region region;
  if (!Expect('@', "and a scope after `region`") || !ParseScope(region.scope)) return false;
  // The root scope is entry 0.
  size_t number = region.scope ? region.scope.index() + 1 : 0;
  if (has_region_.size() <= number) has_region_.resize(number + 1);
  if (has_region_[number])
    return Fail(begin, 6, Diag::kDuplicateName, "scope `{}` has two regions",
                graph_.scope_name(region.scope));
  has_region_[number] = true;
  while (scan_.Peek() == 'l' || scan_.Peek() == 'w') {
    size_t offset = scan_.offset();
    bool local = scan_.TakeWord("local");
    if ((!local && !scan_.TakeWord("why")) || !scan_.Take('='))
      return Fail(offset, 1, Diag::kSyntax, "expected `local=[...]` or `why=...` of a region");
    std::optional<AttrValue> value = types_.ParseLiteral();
    if (!value) return false;
    if (local && std::holds_alternative<Axes>(*value)) {
      region.local = std::get<Axes>(*value);
    } else if (!local && std::holds_alternative<Why>(*value)) {
      region.why = std::get<Why>(*value);
    } else {
      return Fail(offset, 1, Diag::kAttrKind, "`local` is a list of mesh axes, `why` a purpose");
    }
  }
  regions_.push_back(region);
  return true;
}

bool GraphParser::ParseScope(ScopeId& scope) {
  size_t begin = scan_.offset();
  std::optional<std::string> quoted;
  std::string_view text;
  if (scan_.PeekRaw() == '"') {
    quoted = scan_.TakeQuoted();
    if (!quoted)
      return Fail(begin, 1, Diag::kSyntax,
                  "a string is not closed on its line, or has an unknown escape");
    text = *quoted;
  } else {
    text = scan_.TakeRawRun(CharClass::kScope);
    if (text.empty()) return Fail(begin, 1, Diag::kSyntax, "expected a scope after `@`");
    // Neighbouring nodes often have the same scope.
    if (text == last_scope_text_) {
      scope = last_scope_;
      return true;
    }
  }
  // Passes look up each scope and its ancestors, so their number must be small.
  constexpr int64_t kMostParts = 64;
  if (std::ranges::count(text, '.') >= kMostParts)
    return Fail(begin, 1, Diag::kScopeDepth, "a scope has more than {} parts", kMostParts);
  scope = graph_.InternScope(text);
  if (!quoted) {
    last_scope_text_ = text;
    last_scope_ = scope;
  }
  return true;
}

void GraphParser::Poison(size_t begin) {
  results_.clear();
  for (const NameRef& ref : result_names_) {
    if (!graph_.FindValue(ref.name)) results_.push_back({.type = TypeId(), .name = ref.name});
  }
  NodeSpec spec;
  spec.op = OpId();
  spec.results = results_;
  graph_.Append(spec);
  source_.nodes.push_back(begin);
}

// Skips to the next line after `begin` on which a known construct starts.
void GraphParser::Recover(size_t begin) {
  scan_.set_offset(begin);
  for (;;) {
    scan_.SkipLine();
    if (scan_.AtEnd()) return;
    char c = scan_.Peek();
    if (c == '%' || c == '}') return;
    size_t line = scan_.offset();
    bool header = ParsePhase(scan_.TakeRun(CharClass::kWord)) && scan_.Peek() == ':';
    scan_.set_offset(line);
    if (header) return;
  }
}

ValueId GraphParser::Resolve(const NameRef& ref, size_t pool_index) {
  ValueId id = graph_.FindValue(ref.name);
  if (!id) pending_.push_back({ref, false, pool_index});
  return id;
}

bool GraphParser::CheckNewName(const NameRef& ref) {
  ValueId known = graph_.FindValue(ref.name);
  if (!known) return true;
  NodeId producer = graph_[known].producer;
  size_t first = producer ? source_.nodes[producer.index()] : source_.inputs[known.index()];
  return Fail(ref.offset, ref.name.size() + 1, Diag::kDuplicateName,
              "`%{}` is already defined on line {}", ref.name, report_.Line(first));
}

void GraphParser::ResolvePending() {
  for (const Pending& pending : pending_) {
    ValueId id = graph_.FindValue(pending.ref.name);
    if (!id) {
      Fail(pending.ref.offset, pending.ref.name.size() + 1, Diag::kUndefinedValue,
           "`%{}` is not defined in graph `@{}`", pending.ref.name, graph_.name());
      // Add a value without a type, so that further uses of the name cause no errors.
      id = graph_.AddValue({.type = TypeId(), .name = pending.ref.name}, NodeId());
    }
    if (pending.is_output) {
      graph_.mutable_outputs()[pending.index].value = id;
    } else {
      graph_.operand_pool_[pending.index] = id;
    }
  }
}

}  // namespace heddle
