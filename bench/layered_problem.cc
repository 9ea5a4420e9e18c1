#include "bench/layered_problem.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/core.h>

namespace heddle {
namespace {

// Placements of a tensor along one axis.
enum Layout : int { kWhole, kRows, kColumns, kPending };

// One way to split an op along one axis: the placements of its operands and its result.
struct Split {
  Layout first, second, result;
};
// A matmul split by rows, by columns, by its inner dimension, or not at all.
constexpr Split kMatmul[] = {{kWhole, kWhole, kWhole},
                             {kRows, kWhole, kRows},
                             {kWhole, kColumns, kColumns},
                             {kColumns, kRows, kPending}};
constexpr Split kPointwise[] = {{kWhole, kWhole, kWhole},
                                {kRows, kRows, kRows},
                                {kColumns, kColumns, kColumns},
                                {kPending, kPending, kPending}};
constexpr Split kNorm[] = {{kWhole, kWhole, kWhole}, {kRows, kRows, kRows}};
constexpr Split kStored[] = {
    {kWhole, kWhole, kWhole}, {kRows, kRows, kRows}, {kColumns, kColumns, kColumns}};

class Maker {
 public:
  explicit Maker(const LayeredOptions& options) : options_(options), random_(options.seed) {}

  search::PairwiseProblem Make() {
    int x = Add("tokens", kPointwise, 3, 0, 1);
    for (int layer = 0; layer < options_.layers; ++layer) {
      auto matmul = [&](int input, const char* name, double work, double bytes) {
        int w = Add(fmt::format("layers.{}.{}.weight", layer, name), kStored, 3, 0, bytes);
        int out = Add(fmt::format("layers.{}.{}", layer, name), kMatmul, 4, work, 1);
        Connect(input, out, 0);
        Connect(w, out, 1);
        inputs_.push_back(input);
        parameters_.push_back(w);
        activations_.push_back(out);
        return out;
      };
      auto point = [&](int a, int b, const char* name) {
        int out = Add(fmt::format("layers.{}.{}", layer, name), kPointwise, 4, 20, 1);
        Connect(a, out, 0);
        if (b >= 0) Connect(b, out, 1);
        return out;
      };
      int n = Add(fmt::format("layers.{}.norm", layer), kNorm, 2, 30, 1);
      Connect(x, n, 0);
      int q = matmul(n, "wq", 300, 0.5);
      int k = matmul(n, "wk", 100, 0.2);
      int o = matmul(point(q, k, "attention"), "wo", 300, 0.5);
      x = point(o, x, "add");
      int h = matmul(point(x, -1, "norm2"), "w1", 900, 2);
      x = point(matmul(point(h, -1, "silu"), "w2", 900, 2), x, "add2");
    }
    AddBackward(x);
    AddBudget("parameter_memory", parameters_, options_.parameter_share);
    std::vector<int> all = parameters_;
    all.insert(all.end(), activations_.begin(), activations_.end());
    AddBudget("memory", all, options_.memory_share);
    return std::move(problem_);
  }

 private:
  size_t axes() const { return options_.mesh.size(); }
  static search::VariableId IdOf(int v) { return search::VariableId(static_cast<size_t>(v)); }
  size_t size(int v) const { return problem_.variables[IdOf(v)].cost.size(); }
  double Noise() {
    double r = std::uniform_real_distribution<>(-1, 1)(random_);
    return 1 + options_.noise * r;
  }

  // Returns the split along an axis in a choice.
  const Split& SplitOf(int v, size_t choice, size_t axis) const {
    for (size_t a = 0; a < axis; ++a) choice /= counts_[v];
    return splits_[v][choice % counts_[v]];
  }

  int Add(std::string name, const Split* splits, int count, double work, double bytes) {
    int v = static_cast<int>(splits_.size());
    splits_.push_back(splits);
    counts_.push_back(static_cast<size_t>(count));
    bytes_.push_back(bytes);
    search::PairwiseVariable variable{std::move(name), {}};
    auto size = static_cast<size_t>(std::lround(std::pow(count, axes())));
    for (size_t k = 0; k < size; ++k) {
      double cost = work;
      for (size_t a = 0; a < axes(); ++a) {
        if (SplitOf(v, k, a).result != kWhole) cost /= options_.mesh[a];
      }
      variable.cost.push_back(cost * Noise());
    }
    problem_.variables.Add(std::move(variable));
    return v;
  }

  double ShareOf(int v, size_t choice) const {
    double share = bytes_[v];
    for (size_t a = 0; a < axes(); ++a) {
      Layout layout = SplitOf(v, choice, a).result;
      if (layout == kRows || layout == kColumns) share /= options_.mesh[a];
    }
    return share;
  }
  void AddBudget(const char* name, const std::vector<int>& variables, double share) {
    if (share < 0) return;
    search::PairwiseBudget budget{name, 0, 0, {}};
    double least = 0;
    double most = 0;
    for (int v : variables) {
      search::BudgetTerm term{IdOf(v), {}};
      for (size_t k = 0; k < size(v); ++k) term.amount.push_back(ShareOf(v, k));
      least += *std::ranges::min_element(term.amount);
      most += *std::ranges::max_element(term.amount);
      budget.terms.push_back(std::move(term));
    }
    budget.hi = least + share * (most - least);
    problem_.budgets.push_back(std::move(budget));
  }

  // Returns the time to convert between two placements, in passes over the tensor's shard.
  static double Passes(Layout from, Layout to) {
    if (from == to) return 0;
    if (to == kPending) return HUGE_VAL;
    if (from == kWhole) return 0;
    if (from == kPending) return to == kWhole ? 2 : 1;
    return to == kWhole ? 1 : 0.3;
  }

  void Connect(int u, int v, int operand) {
    size_t rows = size(u);
    size_t columns = size(v);
    std::vector<double> matrix;
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        double cost = 0;
        double bytes = 40 * ShareOf(u, i);
        for (size_t a = 0; a < axes(); ++a) {
          const Split& to = SplitOf(v, j, a);
          Layout wanted = operand == 0 ? to.first : to.second;
          cost += Passes(SplitOf(u, i, a).result, wanted) * bytes * static_cast<double>(a + 1);
        }
        matrix.push_back(cost * Noise() + (cost > 0 ? 1 : 0));
      }
    }
    search::MatrixId id = problem_.matrices.Add(std::move(matrix));
    problem_.edges.push_back({IdOf(u), IdOf(v), id});
  }

  // Adds, for every matmul in reverse order, the gradients of its input and of its weight. The
  // weight's gradient has the placement of the weight.
  void AddBackward(int gradient) {
    for (size_t i = inputs_.size(); i-- > 0;) {
      int dw = Add(fmt::format("grad.{}.weight", i), kMatmul, 4, 300, 1);
      Connect(inputs_[i], dw, 0);
      Connect(gradient, dw, 1);
      int kept = Add(fmt::format("grad.{}.weight.kept", i), kStored, 3, 0, bytes_[parameters_[i]]);
      Connect(dw, kept, 0);
      search::PairwiseRelation tie{IdOf(parameters_[i]), IdOf(kept), "grad_param", {}};
      for (uint32_t k = 0; k < size(kept); ++k) tie.pairs.emplace_back(k, k);
      problem_.relations.push_back(std::move(tie));
      int dx = Add(fmt::format("grad.{}.input", i), kMatmul, 4, 300, 1);
      Connect(gradient, dx, 0);
      Connect(parameters_[i], dx, 1);
      gradient = dx;
    }
  }

  LayeredOptions options_;
  std::mt19937 random_;
  search::PairwiseProblem problem_;
  std::vector<const Split*> splits_;
  std::vector<size_t> counts_;
  std::vector<double> bytes_;
  // Input, parameter and result of each matmul.
  std::vector<int> inputs_;
  std::vector<int> parameters_;
  std::vector<int> activations_;
};

}  // namespace

search::PairwiseProblem MakeLayeredProblem(const LayeredOptions& options) {
  return Maker(options).Make();
}

}  // namespace heddle
