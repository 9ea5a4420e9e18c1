#include "heddle/search/solve/problem/problem_file.h"

#include <algorithm>
#include <cmath>

#include "heddle/core/base/gzip.h"
#include "heddle/core/base/json.h"
#include "heddle/core/base/text.h"

namespace heddle::search {
namespace {

constexpr std::string_view kFormat = "pairwise-sharding/1";
constexpr size_t kMostWordBytes = 4096;

class ProblemReader {
 public:
  explicit ProblemReader(const JsonDocument& document) : document_(document) {}

  Result<ProblemFile> Read() const {
    JsonValue root = document_.root();
    if (!root.is_object()) return Wrong(root, "an object");
    ProblemFile file;
    HEDDLE_TRY(std::string format, Word(root, "format"));
    if (!format.empty() && format != kFormat)
      return document_.Fail(*root.Find("format"), "format is `{}`; this program reads `{}`", format,
                            kFormat);
    HEDDLE_TRY(file.name, Word(root, "name"));
    HEDDLE_TRY(file.unit, Word(root, "unit"));
    PairwiseProblem& problem = file.problem;
    HEDDLE_RETURN_IF_ERROR(Require(root, "vars"));
    using Self = ProblemReader;
    HEDDLE_RETURN_IF_ERROR(ReadList(root, "vars", &Self::ReadVariable, problem.variables));
    HEDDLE_RETURN_IF_ERROR(ReadList(root, "matrices", &Self::Costs, problem.matrices));
    HEDDLE_RETURN_IF_ERROR(ReadList(root, "edges", &Self::ReadEdge, problem.edges));
    HEDDLE_RETURN_IF_ERROR(ReadList(root, "hard", &Self::ReadRelation, problem.relations));
    HEDDLE_RETURN_IF_ERROR(
        ReadList(root, "restrict", &Self::ReadRestriction, problem.restrictions));
    HEDDLE_RETURN_IF_ERROR(ReadList(root, "linear", &Self::ReadBudget, problem.budgets));
    return file;
  }

 private:
  Failure Wrong(JsonValue value, std::string_view wanted) const {
    std::string path = value.path();
    return document_.Fail(value, "{} is {}, not {}", path.empty() ? "the file" : path,
                          Describe(value), wanted);
  }
  Result<JsonValue> Require(JsonValue object, std::string_view name) const {
    if (!object.is_object()) return Wrong(object, "an object");
    if (std::optional<JsonValue> found = object.Find(name)) return *found;
    std::string path = object.path();
    return document_.Fail(object, "{}{}`{}` is missing", path, path.empty() ? "" : ": ", name);
  }
  Result<JsonValue> List(JsonValue value) const {
    if (!value.is_array()) return Wrong(value, "a list");
    return value;
  }
  // Returns the entries of a list, which must have `count` entries, as many as `shape` describes.
  Result<std::vector<JsonValue>> Entries(JsonValue value, size_t count,
                                         std::string_view shape) const {
    HEDDLE_TRY(JsonValue list, List(value));
    std::vector<JsonValue> entries;
    for (JsonValue item : list.items()) entries.push_back(item);
    if (entries.size() != count)
      return document_.Fail(value, "{} has {} entries, {} has {}", value.path(), entries.size(),
                            shape, count);
    return entries;
  }
  Result<uint32_t> Index(JsonValue value) const {
    if (!value.is_number()) return Wrong(value, "an index from 0 on");
    if (value.is_int() && value.integer() >= 0 && value.integer() < UINT32_MAX)
      return static_cast<uint32_t>(value.integer());
    return document_.Fail(value, "{} is {}, not an index from 0 on", value.path(), Shown(value));
  }
  Result<VariableId> Variable(JsonValue object, std::string_view name) const {
    HEDDLE_TRY(JsonValue value, Require(object, name));
    HEDDLE_TRY(uint32_t index, Index(value));
    return VariableId(index);
  }
  Result<double> Number(JsonValue value) const {
    if (!value.is_number()) return Wrong(value, "a number");
    return value.number();
  }
  // Reads a text for messages and tables: one line, of limited length. Empty if it is missing.
  Result<std::string> Word(JsonValue object, std::string_view name) const {
    std::optional<JsonValue> value = object.Find(name);
    if (!value) return std::string();
    if (!value->is_string()) return Wrong(*value, "text");
    std::string_view text = value->string();
    if (text.size() > kMostWordBytes)
      return document_.Fail(*value, "{} has {} bytes, at most {}", value->path(),
                            WithCommas(static_cast<int64_t>(text.size())),
                            WithCommas(static_cast<int64_t>(kMostWordBytes)));
    bool control = std::ranges::any_of(text, [](unsigned char c) { return c < ' ' || c == 0x7f; });
    if (control) return document_.Fail(*value, "{} has a control character in it", value->path());
    return std::string(text);
  }

  // Reads each entry of an optional list, and adds it to `to`.
  template <typename T, typename To>
  Status ReadList(JsonValue object, std::string_view name,
                  Result<T> (ProblemReader::*read)(JsonValue) const, To& to) const {
    std::optional<JsonValue> found = object.Find(name);
    if (!found) return Done{};
    HEDDLE_TRY(JsonValue list, List(*found));
    for (JsonValue item : list.items()) {
      HEDDLE_TRY(T entry, (this->*read)(item));
      if constexpr (requires { to.Add(std::move(entry)); }) {
        to.Add(std::move(entry));
      } else {
        to.push_back(std::move(entry));
      }
    }
    return Done{};
  }
  template <typename T, typename To>
  Status ReadRequired(JsonValue object, std::string_view name,
                      Result<T> (ProblemReader::*read)(JsonValue) const, To& to) const {
    HEDDLE_RETURN_IF_ERROR(Require(object, name));
    return ReadList(object, name, read, to);
  }

  // Reads costs; null is a forbidden choice.
  Result<std::vector<double>> Costs(JsonValue value) const {
    HEDDLE_TRY(JsonValue list, List(value));
    std::vector<double> costs;
    for (JsonValue item : list.items()) {
      if (!item.is_null() && !item.is_number()) return Wrong(item, "a number or null");
      costs.push_back(item.is_null() ? kForbidden : item.number());
    }
    return costs;
  }

  Result<PairwiseVariable> ReadVariable(JsonValue value) const {
    PairwiseVariable variable;
    HEDDLE_TRY(JsonValue cost, Require(value, "cost"));
    HEDDLE_TRY(variable.name, Word(value, "name"));
    HEDDLE_TRY(variable.cost, Costs(cost));
    return variable;
  }

  Result<PairwiseEdge> ReadEdge(JsonValue value) const {
    HEDDLE_TRY(std::vector<JsonValue> entries, Entries(value, 3, "[u, v, matrix]"));
    HEDDLE_TRY(uint32_t u, Index(entries[0]));
    HEDDLE_TRY(uint32_t v, Index(entries[1]));
    HEDDLE_TRY(uint32_t matrix, Index(entries[2]));
    return PairwiseEdge{VariableId(u), VariableId(v), MatrixId(matrix)};
  }

  Result<std::pair<uint32_t, uint32_t>> ReadPair(JsonValue value) const {
    HEDDLE_TRY(std::vector<JsonValue> entries, Entries(value, 2, "a pair"));
    HEDDLE_TRY(uint32_t a, Index(entries[0]));
    HEDDLE_TRY(uint32_t b, Index(entries[1]));
    return std::pair(a, b);
  }

  Result<PairwiseRelation> ReadRelation(JsonValue value) const {
    PairwiseRelation relation;
    HEDDLE_TRY(relation.u, Variable(value, "u"));
    HEDDLE_TRY(relation.v, Variable(value, "v"));
    HEDDLE_TRY(relation.kind, Word(value, "kind"));
    HEDDLE_RETURN_IF_ERROR(ReadRequired(value, "pairs", &ProblemReader::ReadPair, relation.pairs));
    return relation;
  }

  Result<PairwiseRestriction> ReadRestriction(JsonValue value) const {
    PairwiseRestriction restriction;
    HEDDLE_TRY(restriction.variable, Variable(value, "v"));
    HEDDLE_TRY(restriction.kind, Word(value, "kind"));
    HEDDLE_RETURN_IF_ERROR(
        ReadRequired(value, "allowed", &ProblemReader::Index, restriction.allowed));
    return restriction;
  }

  Result<BudgetTerm> ReadTerm(JsonValue value) const {
    HEDDLE_TRY(std::vector<JsonValue> entries, Entries(value, 2, "[variable, amounts]"));
    BudgetTerm term;
    HEDDLE_TRY(uint32_t v, Index(entries[0]));
    term.variable = VariableId(v);
    HEDDLE_TRY(JsonValue amounts, List(entries[1]));
    for (JsonValue item : amounts.items()) {
      HEDDLE_TRY(double amount, Number(item));
      term.amount.push_back(amount);
    }
    return term;
  }

  Result<PairwiseBudget> ReadBudget(JsonValue value) const {
    PairwiseBudget budget;
    HEDDLE_RETURN_IF_ERROR(Require(value, "terms"));
    HEDDLE_TRY(budget.name, Word(value, "name"));
    // A missing or null bound is infinite.
    for (auto [name, bound] : {std::pair("lo", &budget.lo), std::pair("hi", &budget.hi)}) {
      std::optional<JsonValue> found = value.Find(name);
      if (!found || found->is_null()) continue;
      HEDDLE_TRY(*bound, Number(*found));
    }
    HEDDLE_RETURN_IF_ERROR(ReadList(value, "terms", &ProblemReader::ReadTerm, budget.terms));
    return budget;
  }

  const JsonDocument& document_;
};

Result<ProblemFile> ParseText(std::string text, const std::string& file) {
  if (IsGzip(text)) {
    HEDDLE_TRY(text, Gunzip(text, kMostProblemText));
  } else if (text.size() > kMostProblemText) {
    return Error(Diag::kProblemFile, "{} bytes, at most {} are read",
                 WithCommas(static_cast<int64_t>(text.size())),
                 WithCommas(static_cast<int64_t>(kMostProblemText)));
  }
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::move(text), file, Diag::kProblemFile));
  HEDDLE_TRY(ProblemFile read, ProblemReader(document).Read());
  Diagnostics mistakes = FindErrors(read.problem);
  if (!mistakes.empty()) return Failure{std::move(mistakes)};
  return read;
}

}  // namespace

Result<ProblemFile> ParseProblem(std::string bytes, std::string_view file) {
  Result<ProblemFile> parsed = ParseText(std::move(bytes), std::string(file));
  for (Diagnostic& diagnostic : parsed.diagnostics()) diagnostic.file = file;
  return parsed;
}

}  // namespace heddle::search
