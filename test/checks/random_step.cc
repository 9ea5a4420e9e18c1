#include "test/checks/random_step.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/core.h>

#include "test/checks/random_plan.h"

namespace heddle {
namespace {

struct MatrixShape {
  int64_t rows = 0;
  int64_t columns = 0;
  auto operator<=>(const MatrixShape&) const = default;
};

class StepWriter {
 public:
  StepWriter(uint32_t seed, NumberKind numbers)
      : dice_(seed),
        whole_(numbers == NumberKind::kWhole),
        has_optimizer_(!whole_ && dice_.OneIn(2)) {}

  RandomStep Write() {
    RandomStep step;
    step.has_optimizer = has_optimizer_;
    AddInputs();
    size_t nodes = 6 + dice_.Pick(16);
    for (size_t i = 0; i < nodes; ++i) AddAny();
    AddLoss();
    body_ += " bwd:\n";
    for (size_t i = 0; i < nodes / 2; ++i) AddAny();
    bool metrics_first = dice_.OneIn(2);
    MakeGradients();
    if (metrics_first) AddMetrics();
    for (size_t i = 0; i < params_.size(); ++i)
      AddOutput(fmt::format("grad {} %{}", i, params_[i].grad));
    if (!metrics_first) AddMetrics();
    if (has_optimizer_) AddOptimizer();
    step.graph = fmt::format("heddle 1 global\ngraph @step({}) -> ({}) {{\n fwd:\n{}}}\n", inputs_,
                             outputs_, body_);
    bool has_layers = body_.find("@layers.0") != std::string::npos;
    compile::Plan plan = RandomPlan(dice_, params_.size(), has_layers);
    step.grad_divisor = plan.grad_divisor;
    step.averages_grads = plan.average;
    step.plan = compile::FormatPlan(plan);
    return step;
  }

 private:
  struct Value {
    std::string name;
    // Upper bound of the elements.
    double most = 2;
  };
  struct Param {
    MatrixShape shape;
    const char* type;
    std::string grad;
  };

  // --- Lines

  std::string Fresh() { return fmt::format("v{}", next_++); }
  std::string Line(const std::string& call) {
    std::string name = Fresh();
    std::string scope = dice_.OneIn(2) ? fmt::format(" @layers.{}", dice_.Pick(2)) : "";
    body_ += fmt::format("  %{} = {}{}\n", name, call, scope);
    return name;
  }
  // Scales numbers down if they may be large, so that whole numbers stay exact.
  void Add(MatrixShape shape, const std::string& call, double most) {
    std::string name = Line(call);
    if (whole_ && most > 1000) {
      name = Line(fmt::format("aten.clamp(%{}, min=-2, max=2)", name));
      most = 2;
    } else if (!whole_ && most > 1000) {
      name = Line(fmt::format("aten.tanh(%{})", name));
      most = 1;
    }
    values_[shape].push_back({name, most});
  }
  MatrixShape AnyShape() {
    auto at = values_.begin();
    std::advance(at, dice_.Pick(values_.size()));
    return at->first;
  }
  const Value& Any(MatrixShape shape) { return dice_.Of(values_[shape]); }
  int64_t AnySize() { return std::array<int64_t, 3>{4, 6, 8}[dice_.Pick(3)]; }

  void AddInput(const std::string& text) { inputs_ += (inputs_.empty() ? "" : ", ") + text; }
  void AddOutput(const std::string& text) { outputs_ += (outputs_.empty() ? "" : ", ") + text; }

  // --- Inputs and outputs

  void AddInputs() {
    rows_ = dice_.OneIn(3) ? 6 : 8;
    for (int i = 0; i < 2; ++i) {
      MatrixShape shape{rows_, AnySize()};
      AddInput(
          fmt::format("%x{0}: {1}[{2},{3}] batch \"x{0}\"", i, type(), shape.rows, shape.columns));
      values_[shape].push_back({fmt::format("x{}", i)});
    }
    AddInput(fmt::format("%ids: i64[{}] batch \"ids\"", rows_));
    size_t count = 1 + dice_.Pick(3);
    for (size_t i = 0; i < count; ++i) {
      MatrixShape shape{AnySize(), AnySize()};
      params_.push_back({shape, whole_ && dice_.OneIn(2) ? "f32" : "f64", ""});
      AddInput(fmt::format("%w{0}: {1}[{2},{3}] param {0} \"layers.{4}.w{0}\" unit \"layers.{4}\"",
                           i, params_[i].type, shape.rows, shape.columns, i % 2));
    }
    for (size_t i = 0; i < count; ++i) ReadParam(i);
  }

  // The type in which the step computes. Whole numbers are exact in a narrower type than some
  // parameters have.
  const char* type() const { return whole_ ? "f32" : "f64"; }
  std::string Cast(const std::string& name, std::string_view from, std::string_view to) {
    return from == to ? name : Line(fmt::format("aten._to_copy(%{}, dtype={})", name, to));
  }

  void ReadParam(size_t i) {
    values_[params_[i].shape].push_back({Cast(fmt::format("w{}", i), params_[i].type, type())});
  }

  void AddLoss() {
    MatrixShape shape = AnyShape();
    body_ += fmt::format("  %loss = aten.sum(%{}) @loss\n", Any(shape).name);
    AddOutput("loss %loss");
  }

  // An update takes over the storage of its parameter, so the graph returns no value that may be a
  // view of one.
  void AddMetrics() {
    for (int i = 0; i < 2; ++i) {
      std::string name = dice_.OneIn(2) ? Any(AnyShape()).name : dice_.Of(params_).grad;
      if (has_optimizer_) name = Line(fmt::format("aten.neg(%{})", name));
      AddOutput(fmt::format("metric \"m{}\" %{}", i, name));
    }
  }

  // Adds, for each parameter, a sum over the rows of the batch, as backward does.
  void MakeGradients() {
    for (size_t i = 0; i < params_.size(); ++i) {
      std::string left = WithColumns(params_[i].shape.rows);
      std::string right = WithColumns(params_[i].shape.columns);
      left = Line(fmt::format("aten.t(%{})", left));
      std::string grad = Line(fmt::format("aten.mm(%{}, %{})", left, right));
      grad = Cast(grad, type(), params_[i].type);
      params_[i].grad = grad;
    }
  }

  // Returns a value with the rows of the batch and this number of columns.
  std::string WithColumns(int64_t columns) {
    MatrixShape wanted{rows_, columns};
    if (values_.contains(wanted)) return Any(wanted).name;
    const Value& batch = Any({rows_, FirstColumns()});
    std::string row =
        Line(fmt::format("aten.sum.dim_IntList(%{}, dim=[1], keepdim=true)", batch.name));
    Add(wanted, fmt::format("aten.expand(%{}, size=[{},{}])", row, rows_, columns),
        batch.most * static_cast<double>(FirstColumns()));
    return values_[wanted].back().name;
  }
  int64_t FirstColumns() const {
    for (const auto& [shape, values] : values_) {
      if (shape.rows == rows_) return shape.columns;
    }
    return 0;
  }

  // Clipping by the norm of all gradients, and AdamW.
  void AddOptimizer() {
    body_ += " opt:\n";
    std::string norms;
    for (const Param& param : params_)
      norms += fmt::format("{}%{}", norms.empty() ? "" : ", ",
                           Line(fmt::format("aten.linalg_vector_norm(%{})", param.grad)));
    std::string norm = Line(
        fmt::format("aten.linalg_vector_norm(%{})", Line(fmt::format("aten.stack([{}])", norms))));
    // Avoids a division by zero: gradients may all be zero.
    norm = Line(fmt::format("aten.add.Scalar(%{}, other=1.0)", norm));
    for (size_t i = 0; i < params_.size(); ++i) {
      std::string type = fmt::format("f64[{},{}]", params_[i].shape.rows, params_[i].shape.columns);
      AddInput(fmt::format("%m{0}: {1} opt {0} \"exp_avg\"", i, type));
      AddInput(fmt::format("%q{0}: {1} opt {0} \"exp_avg_sq\"", i, type));
      AddInput(fmt::format("%s{0}: f32[] opt {0} \"step\"", i));
      std::string grad = Line(fmt::format("aten.div.Tensor(%{}, %{})", params_[i].grad, norm));
      body_ += fmt::format(
          "  %w{0}.new, %g{0}.new, %m{0}.new, %q{0}.new = aten._fused_adamw([%w{0}], [%{1}], "
          "[%m{0}], "
          "[%q{0}], [], [%s{0}], lr=0.1, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-08, "
          "amsgrad=false, maximize=false)\n",
          i, grad);
      for (char state : {'w', 'm', 'q'})
        AddOutput(fmt::format("update %{0}{1} -> %{0}{1}.new", state, i));
    }
  }

  // --- Nodes

  void AddAny() {
    switch (dice_.Pick(8)) {
      case 0:
      case 1: return AddProduct();
      case 2: return AddPair();
      case 3: return AddSingle();
      case 4: return AddView();
      case 5: return AddReduction();
      case 6: return AddLookup();
      default: return AddConstant();
    }
  }

  void AddProduct() {
    MatrixShape left = AnyShape();
    std::vector<MatrixShape> fitting;
    for (const auto& [shape, values] : values_) {
      if (shape.rows == left.columns) fitting.push_back(shape);
    }
    if (fitting.empty()) return AddSingle();
    MatrixShape right = dice_.Of(fitting);
    Value a = Any(left);
    Value b = Any(right);
    Add({left.rows, right.columns}, fmt::format("aten.mm(%{}, %{})", a.name, b.name),
        a.most * b.most * static_cast<double>(left.columns));
  }

  void AddPair() {
    MatrixShape shape = AnyShape();
    Value a = Any(shape);
    Value b = Any(shape);
    // A comparison of real numbers would depend on their rounding.
    switch (dice_.Pick(whole_ ? 5 : 4)) {
      case 0:
        return Add(shape, fmt::format("aten.add.Tensor(%{}, %{})", a.name, b.name),
                   a.most + b.most);
      case 1:
        return Add(shape, fmt::format("aten.sub.Tensor(%{}, %{})", a.name, b.name),
                   a.most + b.most);
      case 2:
        return Add(shape, fmt::format("aten.mul.Tensor(%{}, %{})", a.name, b.name),
                   a.most * b.most);
      case 3:
        return Add(shape, fmt::format("aten.maximum(%{}, %{})", a.name, b.name),
                   std::max(a.most, b.most));
      default: {
        std::string sign = Line(fmt::format("aten.gt.Scalar(%{}, other=0)", a.name));
        return Add(shape, fmt::format("aten.where.self(%{}, %{}, %{})", sign, a.name, b.name),
                   std::max(a.most, b.most));
      }
    }
  }

  void AddSingle() {
    MatrixShape shape = AnyShape();
    Value a = Any(shape);
    if (!whole_ && dice_.OneIn(2)) {
      switch (dice_.Pick(4)) {
        case 0: return Add(shape, fmt::format("aten.tanh(%{})", a.name), 1);
        case 1: return Add(shape, fmt::format("aten.sigmoid(%{})", a.name), 1);
        case 2:
          return Add(shape, fmt::format("aten._softmax(%{}, dim=-1, half_to_float=false)", a.name),
                     1);
        default:
          return Add(shape,
                     fmt::format("aten._log_softmax(%{}, dim=-1, half_to_float=false)", a.name),
                     a.most + 10);
      }
    }
    switch (dice_.Pick(4)) {
      case 0: return Add(shape, fmt::format("aten.neg(%{})", a.name), a.most);
      case 1: return Add(shape, fmt::format("aten.relu(%{})", a.name), a.most);
      case 2: return Add(shape, fmt::format("aten.mul.Scalar(%{}, other=2)", a.name), 2 * a.most);
      default: return Add(shape, fmt::format("aten.abs(%{})", a.name), a.most);
    }
  }

  void AddView() {
    MatrixShape shape = AnyShape();
    auto [rows, columns] = shape;
    Value a = Any(shape);
    switch (dice_.Pick(5)) {
      case 0: return Add({columns, rows}, fmt::format("aten.t(%{})", a.name), a.most);
      case 1: {
        std::string flat =
            Line(fmt::format("aten.reshape(%{}, shape=[{}])", a.name, rows * columns));
        flat = Line(fmt::format("aten.relu(%{})", flat));
        return Add(shape, fmt::format("aten.reshape(%{}, shape=[{},{}])", flat, rows, columns),
                   a.most);
      }
      case 2: {
        // Splits into heads and back, as attention does.
        std::string heads =
            Line(fmt::format("aten.reshape(%{}, shape=[{},2,{}])", a.name, rows, columns / 2));
        heads = Line(fmt::format("aten.transpose.int(%{}, dim0=0, dim1=1)", heads));
        heads = Line(fmt::format("aten.neg(%{})", heads));
        heads = Line(fmt::format("aten.transpose.int(%{}, dim0=0, dim1=1)", heads));
        return Add(shape, fmt::format("aten.reshape(%{}, shape=[{},{}])", heads, rows, columns),
                   a.most);
      }
      case 3:
        return Add({4, columns},
                   fmt::format("aten.slice.Tensor(%{}, dim=0, start=0, end=4)", a.name), a.most);
      default: return Add(shape, fmt::format("aten.alias(%{})", a.name), a.most);
    }
  }

  void AddReduction() {
    MatrixShape shape = AnyShape();
    Value a = Any(shape);
    size_t dim = dice_.Pick(2);
    auto along = static_cast<double>(dim == 0 ? shape.rows : shape.columns);
    std::string stretched;
    if (dice_.OneIn(2)) {
      std::string sum =
          Line(fmt::format("aten.sum.dim_IntList(%{}, dim=[{}], keepdim=true)", a.name, dim));
      return Add(shape,
                 fmt::format("aten.expand(%{}, size=[{},{}])", sum, shape.rows, shape.columns),
                 a.most * along);
    }
    std::string most = Line(fmt::format("aten.amax(%{}, dim=[{}], keepdim=true)", a.name, dim));
    Add(shape, fmt::format("aten.sub.Tensor(%{}, %{})", a.name, most), 2 * a.most);
  }

  // Indices are 0 to 2, and every table has more rows.
  void AddLookup() {
    size_t i = dice_.Pick(params_.size());
    std::string table = Cast(fmt::format("w{}", i), params_[i].type, type());
    Add({rows_, params_[i].shape.columns}, fmt::format("aten.embedding(%{}, %ids)", table), 2);
  }

  void AddConstant() {
    MatrixShape shape = AnyShape();
    Value a = Any(shape);
    std::string constant =
        dice_.OneIn(2) ? Line(fmt::format("aten.ones_like(%{})", a.name))
                       : Line(fmt::format("aten.full(size=[{},{}], fill_value=2.0, dtype={})",
                                          shape.rows, shape.columns, type()));
    Add(shape, fmt::format("aten.add.Tensor(%{}, %{})", a.name, constant), a.most + 2);
  }

  Dice dice_;
  bool whole_;
  bool has_optimizer_;
  // Number of rows of the batch.
  int64_t rows_ = 8;
  size_t next_ = 0;
  std::string inputs_;
  std::string outputs_;
  std::string body_;
  std::vector<Param> params_;
  std::map<MatrixShape, std::vector<Value>> values_;
};

}  // namespace

RandomStep MakeRandomStep(uint32_t seed, NumberKind numbers) {
  return StepWriter(seed, numbers).Write();
}

}  // namespace heddle
