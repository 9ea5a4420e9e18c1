#include <algorithm>
#include <map>
#include <set>

#include "heddle/compile/plan/parse_decisions.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

constexpr std::string_view kStatements[] = {"input", "param", "module",     "node",
                                            "auto",  "grads", "data-grads", "tensor-grads"};

class PlanParser {
 public:
  PlanParser(std::string_view text, std::string_view file) : scan_(text), source_(file, text) {}

  Result<Plan> Parse() {
    if (!ParseHeader() || !ParseMesh()) return Failure{std::move(diagnostics_)};
    while (!scan_.AtEnd()) {
      size_t begin = Here();
      if (ParseStatement()) continue;
      // Continue with the line after the statement's first line, so that one mistake usually gives
      // one message.
      scan_.set_offset(begin);
      scan_.SkipLine();
    }
    if (!diagnostics_.empty()) return Failure{std::move(diagnostics_)};
    return std::move(plan_);
  }

 private:
  size_t Here() {
    scan_.SkipSpace();
    return scan_.offset();
  }
  template <typename... Args>
  bool Fail(size_t offset, size_t width, Diag kind, fmt::format_string<Args...> format,
            Args&&... args) {
    diagnostics_.push_back(source_.At(MakeDiagnostic(kind, format, std::forward<Args>(args)...),
                                      offset, std::max<size_t>(width, 1)));
    return false;
  }
  bool Expected(std::string_view what) {
    return Fail(Here(), 1, Diag::kSyntax, "expected {}", what);
  }
  std::string_view TakeWord() { return scan_.TakeRun(CharClass::kScope); }

  bool ParseHeader() {
    if (!scan_.TakeWord("heddle") || !scan_.TakeWord("plan")) return Expected("`heddle plan 1`");
    size_t at = Here();
    std::optional<int64_t> version = scan_.TakeInt();
    if (!version) return Expected("the version of the plan");
    if (*version != 1)
      return Fail(at, 1, Diag::kVersion, "plan version {}; this build reads version 1", *version);
    return true;
  }

  bool ParseMesh() {
    if (!scan_.TakeWord("mesh")) return Expected("`mesh [axis=size, ...]`");
    Result<Mesh> mesh = heddle::ParseMesh(scan_, source_);
    if (!mesh.ok()) {
      diagnostics_.push_back(mesh.diagnostics()[0]);
      return false;
    }
    plan_.mesh = *std::move(mesh);
    return true;
  }

  bool ParseStatement() {
    size_t at = Here();
    std::string_view word = TakeWord();
    if (word == "mesh")
      return Fail(at, word.size(), Diag::kSyntax,
                  "a plan has one `mesh` line, before all statements");
    if (word == "input") return ParseInput();
    if (word == "param") return ParseParam();
    if (word == "module") return ParseModuleStatement();
    if (word == "node") return ParseNode();
    if (word == "auto") return plan_.automatic = Once(at, "auto", auto_line_);
    if (word == "grads") return ParseGrads(at);
    if (word == "data-grads") return ParseDataGrads(at);
    if (word == "tensor-grads") return ParseTensorGrads(at);
    if (std::ranges::find(kDecisionStatements, word) != std::end(kDecisionStatements))
      return ParseDecisionAt(at, word);
    std::vector<std::string_view> known(std::begin(kStatements), std::end(kStatements));
    known.insert(known.end(), std::begin(kDecisionStatements), std::end(kDecisionStatements));
    return Fail(at, word.size(), Diag::kSyntax, "`{}` is not a statement of a plan{}", word,
                NearestHint(word, known));
  }

  bool ParseDecisionAt(size_t at, std::string_view word) {
    if (word != "keep" && !Once(at, word, decision_lines_[std::string(word)])) return false;
    Status parsed = ParseDecision(word, source_.Line(at), scan_, plan_.decisions);
    if (parsed.ok()) return true;
    diagnostics_.push_back(source_.At(parsed.diagnostics()[0], Here(), 1));
    return false;
  }

  bool ParsePattern(std::string& out, uint32_t& line) {
    size_t at = Here();
    std::optional<std::string> pattern = scan_.TakeQuoted();
    if (!pattern || pattern->empty()) return Expected("a pattern in quotes");
    line = source_.Line(at);
    out = std::move(*pattern);
    return true;
  }

  bool ParseInput() {
    PlanInput input;
    if (!ParsePattern(input.pattern, input.line) || !ParsePlacement(input.placement, input.rank))
      return false;
    plan_.inputs.push_back(std::move(input));
    return true;
  }

  bool ParseParam() {
    PlanParam param;
    if (!ParsePattern(param.pattern, param.line)) return false;
    if (!scan_.TakeWord("store")) return Expected("`store`");
    if (!ParsePlacement(param.store, param.store_rank)) return false;
    if (!scan_.TakeWord("compute")) return Expected("`compute`");
    size_t at = Here();
    if (!ParsePlacement(param.compute, param.compute_rank)) return false;
    if (!param.compute.partials.empty() || !param.store.partials.empty())
      return Fail(at, 1, Diag::kPlacement, "a parameter cannot be partial");
    if (scan_.TakeWord("unit")) {
      std::optional<std::string> unit = scan_.TakeQuoted();
      if (!unit) return Expected("the name of a unit in quotes");
      param.unit = std::move(*unit);
    }
    plan_.params.push_back(std::move(param));
    return true;
  }

  bool ParseModuleStatement() {
    PlanModule module;
    if (!ParsePattern(module.pattern, module.line)) return false;
    while (true) {
      if (scan_.TakeWord("in")) {
        if (!ParseBoundary(module.in)) return false;
      } else if (scan_.TakeWord("out")) {
        if (!ParseBoundary(module.out)) return false;
      } else if (scan_.TakeWord("local")) {
        if (!scan_.Take('[') || !ParseAxes(module.local, ']')) return Expected("`[axis, ...]`");
      } else if (scan_.TakeWord("experts")) {
        if (!ParseExperts(module)) return false;
      } else if (scan_.TakeWord("context")) {
        if (!scan_.Take('[') || !ParseAxes(module.context, ']')) return Expected("`[axis, ...]`");
        module.context_heads = scan_.TakeWord("heads");
        module.context_ring = !module.context_heads && scan_.TakeWord("ring");
      } else if (scan_.TakeWord("why")) {
        size_t at = Here();
        std::string_view word = TakeWord();
        AttrValue why = ParseEnumerator(word);
        if (!std::holds_alternative<Why>(why))
          return Fail(at, word.size(), Diag::kSyntax,
                      "`{}` is not a purpose; choose `tensor` or `loss`", word);
        module.why = std::get<Why>(why);
      } else if (scan_.TakeSymbol("write-out")) {
        module.decomposes_log_softmax = true;
      } else {
        break;
      }
    }
    plan_.modules.push_back(std::move(module));
    return true;
  }

  // Follows `local`, because the axes are a subset of its axes.
  bool ParseExperts(PlanModule& module) {
    size_t at = Here();
    if (!scan_.Take('[') || !ParseAxes(module.experts, ']')) return Expected("`[axis, ...]`");
    for (AxisId axis : module.experts) {
      if (module.local.contains(axis)) continue;
      return Fail(at, 1, Diag::kPlan,
                  "experts are shared over `{}`, but the module is not `local` over it; add the "
                  "axis to `local`",
                  plan_.mesh[axis].name);
    }
    if (!scan_.TakeWord("most")) return true;
    at = Here();
    std::optional<int64_t> times = scan_.TakeInt();
    if (!times || *times < 1)
      return Fail(at, 1, Diag::kBadLiteral,
                  "expected the maximum rows of a rank, as a multiple of its own");
    module.expert_times = *times;
    return true;
  }

  bool ParseBoundary(std::optional<BoundaryPlacement>& out) {
    BoundaryPlacement boundary;
    if (!ParsePlacement(boundary.placement, boundary.rank)) return false;
    out = std::move(boundary);
    return true;
  }

  bool ParseNode() {
    PlanNode node;
    size_t at = Here();
    std::optional<std::string> pattern = scan_.TakeQuoted();
    if (!pattern) return Expected("a pattern in quotes");
    node.line = source_.Line(at);
    node.pattern = std::move(*pattern);
    node.op = TakeWord();
    if (node.op.empty()) return Expected("the name of an op");
    std::optional<Phase> phase = ParsePhase(TakeWord());
    if (!phase) return Expected("`fwd`, `bwd` or `opt`");
    node.phase = *phase;
    std::optional<int64_t> number = scan_.TakeInt();
    if (!number || *number < 0) return Expected("the number of the node, counted from 0");
    node.number = *number;
    if (!scan_.TakeWord("in")) return Expected("`in`");
    while (!scan_.TakeWord("out")) {
      if (!ParseBoundary(node.operands)) return false;
    }
    while (scan_.Peek() == '[') {
      if (!ParseBoundary(node.results)) return false;
    }
    plan_.nodes.push_back(std::move(node));
    return true;
  }
  bool ParseBoundary(std::vector<BoundaryPlacement>& out) {
    BoundaryPlacement& boundary = out.emplace_back();
    return ParsePlacement(boundary.placement, boundary.rank);
  }

  // Fails if a statement about all gradients is repeated.
  bool Once(size_t at, std::string_view statement, uint32_t& line) {
    if (line != 0)
      return Fail(at, statement.size(), Diag::kPlan, "`{}` is already on line {}", statement, line);
    line = source_.Line(at);
    return true;
  }

  bool ParseGrads(size_t statement) {
    if (!Once(statement, "grads", grads_line_)) return false;
    if (scan_.TakeWord("sum")) return true;
    if (scan_.TakeWord("average")) return plan_.average = true;
    if (!scan_.TakeWord("divide")) return Expected("`sum`, `average` or `divide` and a number");
    size_t at = Here();
    std::string text(scan_.TakeRun(CharClass::kNumber));
    char* end = nullptr;
    plan_.grad_divisor = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !IsGradDivisor(plan_.grad_divisor))
      return Fail(at, text.size(), Diag::kBadLiteral,
                  "expected a positive number whose inverse is finite");
    return true;
  }

  bool ParseDataGrads(size_t statement) {
    if (!Once(statement, "data-grads", data_grads_line_)) return false;
    if (scan_.TakeWord("wide")) return true;
    if (scan_.TakeWord("narrow")) return plan_.narrow_grads = true;
    return Expected("`narrow` or `wide`");
  }

  bool ParseTensorGrads(size_t statement) {
    if (!Once(statement, "tensor-grads", tensor_grads_line_)) return false;
    if (scan_.TakeWord("narrow")) return true;
    if (scan_.TakeWord("wide")) return plan_.wide_tensor_grads = true;
    return Expected("`narrow` or `wide`");
  }

  // `[{tp,dp},-]`, optionally followed by `{+tp}`.
  bool ParsePlacement(Placement& out, size_t& rank) {
    size_t at = Here();
    if (!scan_.Take('[')) return Expected("a placement, such as `[dp,-]`");
    rank = 0;
    if (!scan_.Take(']')) {
      do {
        Axes axes;
        if (scan_.Take('{')) {
          if (!ParseAxes(axes, '}')) return false;
        } else if (!scan_.Take('-') && !ParseAxis(axes)) {
          return false;
        }
        out.splits.push_back(axes);
        ++rank;
      } while (scan_.Take(','));
      if (!scan_.Take(']')) return Expected("`,` or `]`");
    }
    while (scan_.Take('{')) {
      if (!ParsePartial(out)) return false;
    }
    return CheckAxesOnce(out, at);
  }

  // `+dp}` or `max dp}`.
  bool ParsePartial(Placement& out) {
    ReduceOp op = ReduceOp::kSum;
    if (!scan_.Take('+')) {
      size_t at = Here();
      std::string_view word = scan_.TakeRun(CharClass::kWord);
      AttrValue reduction = ParseEnumerator(word);
      if (!std::holds_alternative<ReduceOp>(reduction))
        return Fail(at, word.size(), Diag::kSyntax, "expected `+` or the name of a reduction");
      op = std::get<ReduceOp>(reduction);
    }
    Axes axis;
    if (!ParseAxis(axis)) return false;
    out.partials.push_back({axis[0], op});
    return scan_.Take('}') || Expected("`}`");
  }

  bool CheckAxesOnce(Placement& placement, size_t at) {
    std::set<AxisId> seen;
    std::optional<AxisId> twice;
    for (const Axes& axes : placement.splits) {
      for (AxisId axis : axes) {
        if (!seen.insert(axis).second) twice = axis;
      }
    }
    for (const Partial& partial : placement.partials) {
      if (!seen.insert(partial.axis).second) twice = partial.axis;
    }
    if (twice)
      return Fail(at, 1, Diag::kAxisTwice, "axis `{}` occurs twice in one placement",
                  plan_.mesh[*twice].name);
    placement.Normalize();
    return true;
  }

  bool ParseAxes(Axes& axes, char close) {
    if (scan_.Take(close)) return true;
    do {
      if (!ParseAxis(axes)) return false;
    } while (scan_.Take(','));
    return scan_.Take(close) || Expected(fmt::format("`{}`", close));
  }

  bool ParseAxis(Axes& axes) {
    size_t at = Here();
    std::string_view name = scan_.TakeRun(CharClass::kWord);
    std::optional<AxisId> axis = plan_.mesh.Find(name);
    if (!axis) {
      std::vector<std::string_view> names;
      for (const MeshAxis& known : plan_.mesh.axes()) names.push_back(known.name);
      return Fail(at, name.size(), Diag::kUnknownAxis, "`{}` is not an axis of the mesh [{}]{}",
                  name, Format(plan_.mesh), NearestHint(name, names));
    }
    if (!axes.Add(*axis))
      return Fail(at, name.size(), Diag::kAxisTwice, "axis `{}` occurs twice in one list", name);
    return true;
  }

  Scanner scan_;
  SourceText source_;
  Plan plan_;
  uint32_t auto_line_ = 0;
  uint32_t grads_line_ = 0;
  uint32_t data_grads_line_ = 0;
  uint32_t tensor_grads_line_ = 0;
  std::map<std::string, uint32_t> decision_lines_;
  Diagnostics diagnostics_;
};

}  // namespace

Result<Plan> ParsePlan(std::string_view text, std::string_view file) {
  return PlanParser(text, file).Parse();
}

}  // namespace heddle::compile
