#include "heddle/compile/plan/parse_decisions.h"

namespace heddle::compile {
namespace {

Status Expected(std::string_view what) { return Error(Diag::kSyntax, "expected {}", what); }

// Takes a word that `parse` accepts; otherwise the scanner stays before it.
template <typename T, typename Parse>
std::optional<T> TakeParsed(Scanner& scan, Parse parse) {
  scan.SkipSpace();
  size_t begin = scan.offset();
  std::optional<T> parsed = parse(scan.TakeRun(CharClass::kScope));
  if (!parsed) scan.set_offset(begin);
  return parsed;
}

Status ParseBatch(Scanner& scan, PlanDecisions& out) {
  PlanBatch batch;
  scan.SkipSpace();
  size_t begin = scan.offset();
  std::optional<int64_t> sequences = scan.TakeInt();
  if (!sequences || *sequences < 1) return Expected("the number of sequences of a step");
  if (!scan.TakeWord("x")) return Expected("`x` and the tokens of a sequence");
  std::optional<int64_t> seq_len = scan.TakeInt();
  if (!seq_len || *seq_len < 1) return Expected("the number of tokens of a sequence");
  batch.sequences = *sequences;
  batch.seq_len = *seq_len;
  if (scan.TakeWord("in")) {
    std::optional<int64_t> count = scan.TakeInt();
    if (!count || *count < 1) return Expected("the number of micro-batches");
    if (!scan.TakeSymbol("micro-batches")) return Expected("`micro-batches`");
    if (*sequences % *count != 0) {
      scan.set_offset(begin);
      return Error(Diag::kPlan, "{} sequences cannot be divided evenly into {} micro-batches",
                   *sequences, *count);
    }
    batch.micro_batches = *count;
  }
  out.batch = batch;
  return Done{};
}

Status ParseStagesStatement(Scanner& scan, PlanDecisions& out) {
  PlanStages stages;
  do {
    std::optional<int64_t> first = scan.TakeInt();
    bool rises = first && (stages.first_positions.empty() ? *first == 0
                                                          : *first > stages.first_positions.back());
    if (!rises) return Expected("the first positions of the stages, as in 0/3: 0, and rising");
    stages.first_positions.push_back(*first);
  } while (scan.Take('/'));
  if (!scan.TakeWord("schedule")) return Expected("`schedule` and its name");
  std::optional<std::string> name = scan.TakeQuoted();
  if (!name) return Expected("the name of a schedule in quotes");
  stages.schedule = std::move(*name);
  std::optional<int64_t> count = scan.TakeWord("in") ? scan.TakeInt() : std::nullopt;
  if (!count || *count < 1) return Expected("`in` and the number of micro-batches");
  if (!scan.TakeSymbol("micro-batches")) return Expected("`micro-batches`");
  stages.micro_batches = *count;
  for (auto [word, every] :
       {std::pair("gather", &stages.gather_every), std::pair("reduce", &stages.reduce_every)}) {
    if (!scan.TakeWord(word)) continue;
    if (!scan.TakeWord("every")) return Expected("`every` and a number of micro-batches");
    size_t begin = scan.offset();
    std::optional<int64_t> number = scan.TakeInt();
    if (!number || *number < 1) {
      scan.set_offset(begin);
      return Expected("a number of micro-batches above 0");
    }
    *every = *number;
  }
  out.stages = std::move(stages);
  return Done{};
}

Status ParseBudgetStatement(Scanner& scan, PlanDecisions& out) {
  auto parse = [](std::string_view text) -> std::optional<Bytes> {
    Result<Bytes> bytes = ParseBytes(text);
    bool has_unit = !text.empty() && (text.back() < '0' || text.back() > '9');
    if (!bytes.ok() || !has_unit || bytes->value < 1) return std::nullopt;
    return *bytes;
  };
  out.budget = TakeParsed<Bytes>(scan, parse);
  if (!out.budget) return Expected("a size above 0 with its unit, such as 60GiB");
  return Done{};
}

Status ParseText(Scanner& scan, std::string_view what, std::optional<std::string>& out) {
  std::optional<std::string> text = scan.TakeQuoted();
  if (!text) return Expected(what);
  out = std::move(text);
  return Done{};
}

Status ParseEither(Scanner& scan, std::string_view yes, std::string_view no,
                   std::optional<bool>& out) {
  if (scan.TakeWord(yes))
    out = true;
  else if (scan.TakeWord(no))
    out = false;
  else
    return Error(Diag::kSyntax, "expected `{}` or `{}`", yes, no);
  return Done{};
}

Status ParseKeepStatement(uint32_t line, Scanner& scan, PlanDecisions& out) {
  PlanMark mark;
  mark.line = line;
  std::optional<std::string> pattern = scan.TakeQuoted();
  if (!pattern) return Expected("a pattern in quotes");
  mark.pattern = std::move(*pattern);
  mark.op = scan.TakeRun(CharClass::kScope);
  if (mark.op.empty()) return Expected("the name of an op");
  std::optional<Phase> phase = TakeParsed<Phase>(scan, ParsePhase);
  if (!phase) return Expected("`fwd`, `bwd` or `opt`");
  mark.phase = *phase;
  std::optional<int64_t> number = scan.TakeInt();
  if (!number || *number < 0) return Expected("the number of the node, counted from 0");
  mark.number = *number;
  if (scan.TakeWord("result")) {
    std::optional<int64_t> result = scan.TakeInt();
    if (!result || *result < 0) return Expected("the number of the result, counted from 0");
    mark.result = *result;
  }
  std::optional<Keep> keep = TakeParsed<Keep>(scan, [](std::string_view word) {
    std::optional<Keep> parsed = ParseKeep(word);
    return parsed == Keep::kDefault ? std::nullopt : parsed;
  });
  if (!keep) return Expected("`must_save`, `must_recompute`, `prefer_recompute` or `offload`");
  mark.keep = *keep;
  out.marks.push_back(std::move(mark));
  return Done{};
}

}  // namespace

Status ParseDecision(std::string_view word, uint32_t line, Scanner& scan, PlanDecisions& out) {
  if (word == "batch") return ParseBatch(scan, out);
  if (word == "norms") return ParseEither(scan, "apart", "shared", out.norms_apart);
  if (word == "cluster") return ParseText(scan, "the name of a cluster in quotes", out.cluster);
  if (word == "budget") return ParseBudgetStatement(scan, out);
  if (word == "pipeline") return ParseText(scan, "a pipeline in quotes", out.pipeline);
  if (word == "reshard") return ParseText(scan, "a policy in quotes", out.reshard);
  if (word == "reduce-first") return ParseEither(scan, "true", "false", out.reduce_first);
  if (word == "expert-rows") return ParseEither(scan, "bound", "exact", out.expert_buffers);
  if (word == "stages") return ParseStagesStatement(scan, out);
  if (word == "checkpoint") return ParseText(scan, "a policy in quotes", out.checkpoint);
  HEDDLE_CHECK(word == "keep", "a statement about a decision");
  return ParseKeepStatement(line, scan, out);
}

}  // namespace heddle::compile
