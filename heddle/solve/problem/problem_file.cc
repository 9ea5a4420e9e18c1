#include "heddle/solve/problem/problem_file.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <simdjson.h>

#include "heddle/base/gzip.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kFormat = "pairwise-sharding/1";
constexpr size_t kMostWordBytes = 4096;

std::string_view TypeName(element e) {
  switch (e.type()) {
    case simdjson::dom::element_type::ARRAY: return "a list";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a boolean";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    default: return "a number";
  }
}

Failure Wrong(element e, const std::string& where, std::string_view wanted) {
  return Error(Diag::kProblemFile, "{} is {}, not {}", where, TypeName(e), wanted);
}

Result<array> List(element e, const std::string& where) {
  array list;
  if (e.get(list) != simdjson::SUCCESS) return Wrong(e, where, "a list");
  return list;
}

Result<uint32_t> Index(element e, const std::string& where) {
  uint64_t number = 0;
  if (!e.is_number()) return Wrong(e, where, "an index from 0 on");
  if (e.get(number) != simdjson::SUCCESS || number >= UINT32_MAX)
    return Error(Diag::kProblemFile, "{} is {}, not an index from 0 on", where,
                 simdjson::minify(e));
  return static_cast<uint32_t>(number);
}

Result<double> Number(element e, const std::string& where) {
  double number = 0;
  if (e.get(number) != simdjson::SUCCESS) return Wrong(e, where, "a number");
  return number;
}

// A name or the like, which messages and tables repeat: of one line, and no longer than anyone reads.
Result<std::string> Word(element e, const std::string& where) {
  std::string_view text;
  if (e.get(text) != simdjson::SUCCESS) return Wrong(e, where, "a string");
  if (text.size() > kMostWordBytes)
    return Error(Diag::kProblemFile, "{} has {} bytes, at most {}", where,
                 WithCommas(static_cast<int64_t>(text.size())),
                 WithCommas(static_cast<int64_t>(kMostWordBytes)));
  bool control = std::ranges::any_of(text, [](unsigned char c) { return c < ' ' || c == 0x7f; });
  if (control) return Error(Diag::kProblemFile, "{} has a control character in it", where);
  return std::string(text);
}

// Numbers, with null for what is forbidden.
Result<std::vector<double>> Costs(element e, const std::string& where) {
  HEDDLE_TRY(array list, List(e, where));
  std::vector<double> costs;
  costs.reserve(list.size());
  for (element item : list) {
    if (item.is_null()) {
      costs.push_back(kForbidden);
      continue;
    }
    double number = 0;
    if (item.get(number) != simdjson::SUCCESS)
      return Wrong(item, fmt::format("{}[{}]", where, costs.size()), "a number or null");
    costs.push_back(number);
  }
  return costs;
}

// The fields of an object that matter here, each at most once.
class Fields {
 public:
  static Result<Fields> Of(element e, std::string where,
                           std::initializer_list<std::string_view> names) {
    object all;
    if (e.get(all) != simdjson::SUCCESS) return Wrong(e, where, "an object");
    Fields fields(std::move(where));
    for (auto [key, value] : all) {
      if (std::ranges::find(names, key) == names.end()) continue;
      if (fields.Find(key) != nullptr)
        return Error(Diag::kProblemFile, "{}`{}` is given twice", fields.prefix_, key);
      fields.found_.emplace_back(key, value);
    }
    return fields;
  }

  const element* Find(std::string_view name) const {
    for (const auto& [key, value] : found_) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  Result<element> Get(std::string_view name) const {
    const element* found = Find(name);
    if (found == nullptr) return Error(Diag::kProblemFile, "{}`{}` is missing", prefix_, name);
    return *found;
  }
  std::string Where(std::string_view name) const {
    return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
  }
  // Empty if it is not there.
  Result<std::string> String(std::string_view name) const {
    const element* found = Find(name);
    if (found == nullptr) return std::string();
    return Word(*found, Where(name));
  }
  Result<VariableId> Variable(std::string_view name) const {
    HEDDLE_TRY(element e, Get(name));
    HEDDLE_TRY(uint32_t index, Index(e, Where(name)));
    return VariableId(index);
  }

 private:
  explicit Fields(std::string where)
      : where_(std::move(where)), prefix_(where_.empty() ? "" : where_ + ": ") {}

  std::string where_;
  std::string prefix_;
  std::vector<std::pair<std::string_view, element>> found_;
};

Result<PairwiseVariable> ReadVariable(element e, const std::string& where) {
  HEDDLE_TRY(Fields fields, Fields::Of(e, where, {"name", "cost"}));
  PairwiseVariable variable;
  HEDDLE_TRY(variable.name, fields.String("name"));
  HEDDLE_TRY(element cost, fields.Get("cost"));
  HEDDLE_TRY(variable.cost, Costs(cost, fields.Where("cost")));
  return variable;
}

Result<PairwiseEdge> ReadEdge(element e, const std::string& where) {
  HEDDLE_TRY(array list, List(e, where));
  if (list.size() != 3)
    return Error(Diag::kProblemFile, "{} has {} entries, [u, v, matrix] has 3", where, list.size());
  std::vector<uint32_t> index;
  for (element item : list) {
    HEDDLE_TRY(uint32_t i, Index(item, fmt::format("{}[{}]", where, index.size())));
    index.push_back(i);
  }
  return PairwiseEdge{VariableId(index[0]), VariableId(index[1]), MatrixId(index[2])};
}

Result<PairwiseRelation> ReadRelation(element e, const std::string& where) {
  HEDDLE_TRY(Fields fields, Fields::Of(e, where, {"u", "v", "kind", "pairs"}));
  PairwiseRelation relation;
  HEDDLE_TRY(relation.u, fields.Variable("u"));
  HEDDLE_TRY(relation.v, fields.Variable("v"));
  HEDDLE_TRY(relation.kind, fields.String("kind"));
  HEDDLE_TRY(element pairs, fields.Get("pairs"));
  HEDDLE_TRY(array list, List(pairs, fields.Where("pairs")));
  for (element item : list) {
    std::string here = fmt::format("{}.pairs[{}]", where, relation.pairs.size());
    HEDDLE_TRY(array pair, List(item, here));
    if (pair.size() != 2)
      return Error(Diag::kProblemFile, "{} has {} entries, a pair has 2", here, pair.size());
    HEDDLE_TRY(uint32_t a, Index(pair.at(0).value_unsafe(), here));
    HEDDLE_TRY(uint32_t b, Index(pair.at(1).value_unsafe(), here));
    relation.pairs.emplace_back(a, b);
  }
  return relation;
}

Result<PairwiseRestriction> ReadRestriction(element e, const std::string& where) {
  HEDDLE_TRY(Fields fields, Fields::Of(e, where, {"v", "kind", "allowed"}));
  PairwiseRestriction restriction;
  HEDDLE_TRY(restriction.variable, fields.Variable("v"));
  HEDDLE_TRY(restriction.kind, fields.String("kind"));
  HEDDLE_TRY(element allowed, fields.Get("allowed"));
  HEDDLE_TRY(array list, List(allowed, fields.Where("allowed")));
  for (element item : list) {
    HEDDLE_TRY(uint32_t k,
               Index(item, fmt::format("{}.allowed[{}]", where, restriction.allowed.size())));
    restriction.allowed.push_back(k);
  }
  return restriction;
}

Result<BudgetTerm> ReadTerm(element e, const std::string& where) {
  HEDDLE_TRY(array list, List(e, where));
  if (list.size() != 2)
    return Error(Diag::kProblemFile, "{} has {} entries, [variable, amounts] has 2", where,
                 list.size());
  BudgetTerm term;
  HEDDLE_TRY(uint32_t v, Index(list.at(0).value_unsafe(), where + "[0]"));
  term.variable = VariableId(v);
  HEDDLE_TRY(array amounts, List(list.at(1).value_unsafe(), where + "[1]"));
  for (element item : amounts) {
    HEDDLE_TRY(double amount, Number(item, fmt::format("{}[1][{}]", where, term.amount.size())));
    term.amount.push_back(amount);
  }
  return term;
}

Result<PairwiseBudget> ReadBudget(element e, const std::string& where) {
  HEDDLE_TRY(Fields fields, Fields::Of(e, where, {"name", "lo", "hi", "terms"}));
  PairwiseBudget budget;
  HEDDLE_TRY(budget.name, fields.String("name"));
  // A bound that is missing, or null, is none.
  for (auto [name, bound] : {std::pair("lo", &budget.lo), std::pair("hi", &budget.hi)}) {
    const element* found = fields.Find(name);
    if (found == nullptr || found->is_null()) continue;
    HEDDLE_TRY(*bound, Number(*found, fields.Where(name)));
  }
  HEDDLE_TRY(element terms, fields.Get("terms"));
  HEDDLE_TRY(array list, List(terms, fields.Where("terms")));
  for (element item : list) {
    HEDDLE_TRY(BudgetTerm term,
               ReadTerm(item, fmt::format("{}.terms[{}]", where, budget.terms.size())));
    budget.terms.push_back(std::move(term));
  }
  return budget;
}

// Each entry of list `name`, given to `read` with its place. A list that is not there is empty.
template <typename Read>
Status ForEach(const Fields& fields, std::string_view name, Read&& read) {
  const element* found = fields.Find(name);
  if (found == nullptr) return Done{};
  HEDDLE_TRY(array list, List(*found, std::string(name)));
  size_t i = 0;
  for (element item : list) HEDDLE_RETURN_IF_ERROR(read(item, fmt::format("{}[{}]", name, i++)));
  return Done{};
}

Result<ProblemFile> ReadRoot(element root) {
  HEDDLE_TRY(Fields fields, Fields::Of(root, "",
                                       {"format", "name", "unit", "vars", "matrices", "edges",
                                        "hard", "restrict", "linear"}));
  ProblemFile file;
  HEDDLE_TRY(std::string format, fields.String("format"));
  if (!format.empty() && format != kFormat)
    return Error(Diag::kProblemFile, "format is `{}`; this program reads `{}`", format, kFormat);
  HEDDLE_TRY(file.name, fields.String("name"));
  HEDDLE_TRY(file.unit, fields.String("unit"));
  PairwiseProblem& problem = file.problem;
  auto add = [](auto read, auto& to) {
    return [read, &to](element e, const std::string& where) -> Status {
      HEDDLE_TRY(auto item, read(e, where));
      if constexpr (requires { to.Add(std::move(item)); }) {
        to.Add(std::move(item));
      } else {
        to.push_back(std::move(item));
      }
      return Done{};
    };
  };
  HEDDLE_RETURN_IF_ERROR(fields.Get("vars"));
  HEDDLE_RETURN_IF_ERROR(ForEach(fields, "vars", add(ReadVariable, problem.variables)));
  HEDDLE_RETURN_IF_ERROR(ForEach(fields, "matrices", add(Costs, problem.matrices)));
  HEDDLE_RETURN_IF_ERROR(ForEach(fields, "edges", add(ReadEdge, problem.edges)));
  HEDDLE_RETURN_IF_ERROR(ForEach(fields, "hard", add(ReadRelation, problem.relations)));
  HEDDLE_RETURN_IF_ERROR(ForEach(fields, "restrict", add(ReadRestriction, problem.restrictions)));
  HEDDLE_RETURN_IF_ERROR(ForEach(fields, "linear", add(ReadBudget, problem.budgets)));
  return file;
}

Result<ProblemFile> ParseText(std::string_view bytes) {
  std::string unpacked;
  if (IsGzip(bytes)) {
    HEDDLE_TRY(unpacked, Gunzip(bytes, kMostProblemText));
    bytes = unpacked;
  }
  if (bytes.size() > kMostProblemText)
    return Error(Diag::kProblemFile, "{} bytes, at most {} are read",
                 WithCommas(static_cast<int64_t>(bytes.size())),
                 WithCommas(static_cast<int64_t>(kMostProblemText)));
  simdjson::dom::parser parser;
  element root;
  auto error = parser.parse(bytes.data(), bytes.size()).get(root);
  if (error != simdjson::SUCCESS)
    return Error(Diag::kProblemFile, "not JSON: {}", simdjson::error_message(error));
  HEDDLE_TRY(ProblemFile file, ReadRoot(root));
  Diagnostics mistakes = FindErrors(file.problem);
  if (!mistakes.empty()) return Failure{std::move(mistakes)};
  return file;
}

}  // namespace

Result<ProblemFile> ParseProblem(std::string_view bytes, std::string_view file) {
  Result<ProblemFile> parsed = ParseText(bytes);
  for (Diagnostic& diagnostic : parsed.diagnostics()) diagnostic.file = file;
  return parsed;
}

}  // namespace heddle
