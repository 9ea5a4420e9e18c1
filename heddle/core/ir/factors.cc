#include "heddle/core/ir/factors.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// Reads the patterns and marks of a rule, then derives the sizes of its factors from the types.
class RuleReader {
 public:
  explicit RuleReader(std::string_view rule) : scan_(rule) {}

  Result<Factors> Read(const std::vector<Type>& operands, const std::vector<Type>& results) {
    if (!ReadTensors(out_.operands) || !scan_.TakeSymbol("->") || !ReadTensors(out_.results))
      return Bad();
    while (!scan_.AtEnd()) {
      std::string_view word = scan_.TakeRun(CharClass::kWord);
      if (!scan_.Take('{')) return Bad();
      size_t begin = scan_.offset();
      size_t close = scan_.text().find('}', begin);
      if (close == std::string_view::npos) return Bad();
      std::string_view inner = scan_.text().substr(begin, close - begin);
      scan_.set_offset(close + 1);
      if (word == "linear") {
        AddLinear(out_, inner);
      } else if (word == "local" || word == "masked" || word == "counted" || word == "nonempty") {
        bool Factor::*mark = word == "local"     ? &Factor::local
                             : word == "masked"  ? &Factor::masked
                             : word == "counted" ? &Factor::counted
                                                 : &Factor::nonempty;
        for (std::string_view name : Split(inner, ' '))
          out_.factors[Named(Trim(name))].*mark = true;
      } else if (!SetKinds(word, inner)) {
        return Bad();
      }
    }
    HEDDLE_RETURN_IF_ERROR(Fit(out_.operands, operands, "operand"));
    HEDDLE_RETURN_IF_ERROR(Fit(out_.results, results, "result"));
    HEDDLE_RETURN_IF_ERROR(Solve(operands, results));
    return std::move(out_);
  }

 private:
  Failure Bad() {
    return Error(Diag::kBadFactors, "factor rule `{}`: cannot read character {}", scan_.text(),
                 scan_.offset() + 1);
  }

  FactorId Named(std::string_view name) {
    for (size_t i = 0; i < out_.factors.size(); ++i) {
      if (out_.factors[i].name == name) return static_cast<FactorId>(i);
    }
    return out_.Add(std::string(name), kUnknown);
  }

  bool ReadTensors(std::vector<TensorFactors>& tensors) {
    if (!scan_.Take('(')) return false;
    if (scan_.Take(')')) return true;
    do {
      TensorFactors dims;
      while (scan_.Peek() != ',' && scan_.Peek() != ')') {
        DimFactors dim;
        if (scan_.Take('(')) {
          while (!scan_.Take(')')) {
            std::string_view name = scan_.TakeRun(CharClass::kWord);
            if (name.empty()) return false;
            dim.push_back(Named(name));
          }
        } else {
          std::string_view name = scan_.TakeRun(CharClass::kWord);
          if (name.empty()) return false;
          if (name != "1") dim.push_back(Named(name));
        }
        dims.push_back(std::move(dim));
      }
      tensors.push_back(std::move(dims));
    } while (scan_.Take(','));
    return scan_.Take(')');
  }

  bool SetKinds(std::string_view word, std::string_view names) {
    FactorKind kind = FactorKind::kReduce;
    ReduceOp reduce = ReduceOp::kSum;
    if (word == "whole") {
      kind = FactorKind::kWhole;
    } else if (word == "max") {
      reduce = ReduceOp::kMax;
    } else if (word != "reduce") {
      return false;
    }
    for (std::string_view name : Split(names, ' ')) {
      Factor& factor = out_.factors[Named(Trim(name))];
      factor.kind = kind;
      factor.reduce = reduce;
    }
    return true;
  }

  // Gives every tensor of the call a pattern with its number of dimensions. An absent tensor has
  // none.
  Status Fit(std::vector<TensorFactors>& patterns, const std::vector<Type>& types,
             std::string_view what) {
    patterns.resize(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i].is_none()) patterns[i].clear();
      if (patterns[i].size() == types[i].rank()) continue;
      return Error(Diag::kBadFactors, "factor rule `{}`: {} {} has {} dimensions, the rule {}",
                   scan_.text(), what, i, types[i].rank(), patterns[i].size());
    }
    return Done{};
  }

  // A dimension determines the size of its only factor of unknown size. Each round resolves more of
  // them.
  Status Solve(const std::vector<Type>& operands, const std::vector<Type>& results) {
    for (size_t round = 0; round <= out_.factors.size(); ++round) {
      bool missing = false;
      for (const auto& [patterns, types] :
           {std::pair(&out_.operands, &operands), std::pair(&out_.results, &results)}) {
        for (size_t i = 0; i < types->size(); ++i) {
          for (size_t d = 0; d < (*patterns)[i].size(); ++d) {
            missing |= !SolveDim((*patterns)[i][d], (*types)[i].dims[d]);
          }
        }
      }
      if (!missing) return Done{};
    }
    return Error(Diag::kBadFactors, "factor rule `{}`: the sizes do not determine its factors",
                 scan_.text());
  }

  bool SolveDim(const DimFactors& dim, Dim size) {
    FactorId open = 0;
    int unknown = 0;
    int64_t known = 1;
    for (FactorId id : dim) {
      if (out_.factors[id].size == kUnknown) {
        open = id;
        ++unknown;
      } else {
        known *= out_.factors[id].size;
      }
    }
    if (unknown > 1) return false;
    if (unknown == 1) {
      bool whole = dim.size() == 1;
      if (!whole && (IsSymbol(size) || known == 0 || size % known != 0)) return false;
      out_.factors[open].size = whole ? size : size / known;
    }
    return true;
  }

  static constexpr Dim kUnknown = -1;
  Scanner scan_;
  Factors out_;
};

void AppendTensors(std::string& out, const std::vector<TensorFactors>& tensors,
                   const std::vector<Factor>& factors) {
  out += '(';
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i != 0) out += ", ";
    for (size_t d = 0; d < tensors[i].size(); ++d) {
      if (d != 0) out += ' ';
      const DimFactors& dim = tensors[i][d];
      if (dim.empty()) out += '1';
      if (dim.size() > 1) out += '(';
      for (size_t k = 0; k < dim.size(); ++k) {
        if (k != 0) out += ' ';
        out += factors[dim[k]].name;
      }
      if (dim.size() > 1) out += ')';
    }
  }
  out += ')';
}

void AppendKinds(std::string& out, const std::vector<Factor>& factors, std::string_view word,
                 FactorKind kind, std::optional<ReduceOp> reduce) {
  std::string names;
  for (const Factor& factor : factors) {
    if (factor.kind != kind || (reduce && factor.reduce != *reduce)) continue;
    if (!names.empty()) names += ' ';
    names += factor.name;
  }
  if (!names.empty()) out += fmt::format(" {}{{{}}}", word, names);
}

void AppendMarks(std::string& out, const std::vector<Factor>& factors, std::string_view word,
                 bool Factor::*mark) {
  std::string names;
  for (const Factor& factor : factors) {
    if (!(factor.*mark)) continue;
    if (!names.empty()) names += ' ';
    names += factor.name;
  }
  if (!names.empty()) out += fmt::format(" {}{{{}}}", word, names);
}

// `{0+1|2}`
void AppendOperands(std::string& out, std::string_view word,
                    const std::vector<std::vector<uint32_t>>& groups) {
  if (groups.empty()) return;
  out += fmt::format(" {}{{", word);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (g != 0) out += '|';
    for (size_t k = 0; k < groups[g].size(); ++k) {
      if (k != 0) out += '+';
      AppendInt(out, groups[g][k]);
    }
  }
  out += '}';
}

}  // namespace

FactorId Factors::Add(std::string name, Dim size, FactorKind kind, ReduceOp reduce) {
  factors.push_back({.name = std::move(name), .size = size, .kind = kind, .reduce = reduce});
  return static_cast<FactorId>(factors.size() - 1);
}

Result<Factors> FactorsFromText(std::string_view rule, const std::vector<Type>& operands,
                                const std::vector<Type>& results) {
  return RuleReader(rule).Read(operands, results);
}

void AddLinear(Factors& factors, std::string_view groups) {
  if (groups.empty()) return;
  for (std::string_view group : Split(groups, '|')) {
    std::vector<uint32_t> operands;
    for (std::string_view item : Split(group, '+')) {
      uint32_t index = 0;
      std::from_chars(item.data(), item.data() + item.size(), index);
      operands.push_back(index);
    }
    factors.linear.push_back(std::move(operands));
  }
}

std::string Format(const Factors& factors) {
  std::string out;
  AppendTensors(out, factors.operands, factors.factors);
  out += " -> ";
  AppendTensors(out, factors.results, factors.factors);
  AppendKinds(out, factors.factors, "reduce", FactorKind::kReduce, ReduceOp::kSum);
  AppendKinds(out, factors.factors, "max", FactorKind::kReduce, ReduceOp::kMax);
  AppendKinds(out, factors.factors, "min", FactorKind::kReduce, ReduceOp::kMin);
  AppendKinds(out, factors.factors, "whole", FactorKind::kWhole, std::nullopt);
  AppendMarks(out, factors.factors, "local", &Factor::local);
  AppendMarks(out, factors.factors, "masked", &Factor::masked);
  AppendMarks(out, factors.factors, "counted", &Factor::counted);
  AppendMarks(out, factors.factors, "nonempty", &Factor::nonempty);
  AppendOperands(out, "linear", factors.linear);
  if (!factors.unread.empty()) AppendOperands(out, "unread", {factors.unread});
  if (factors.sums_parts) out += " sums_parts";
  return out;
}

}  // namespace heddle
