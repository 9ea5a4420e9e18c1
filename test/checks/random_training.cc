#include "test/checks/random_training.h"

#include <fmt/core.h>

#include "test/checks/random_graph.h"

namespace heddle {
namespace {

class TrainingWriter {
 public:
  explicit TrainingWriter(uint32_t seed) : dice_(seed) {}

  std::string Write() {
    AddParams();
    body_ += " fwd:\n";
    std::string x = "x";
    for (size_t u = 0; u < units_; ++u) x = Forward(u, x);
    Line("loss", fmt::format("aten.sum(%{})", x), "");
    body_ += " bwd:\n";
    std::string d = Line(Fresh("d"), "aten.expand(%loss, size=[8,8])", "");
    for (size_t u = units_; u-- > 0;) d = Backward(u, d);
    outputs_ += fmt::format(", metric \"d\" %{}", d);
    return fmt::format("heddle 1 local\nmesh [rep=2,dp=2]\ngraph @g({}) -> ({}) {{\n{}}}\n",
                       inputs_, outputs_, body_);
  }

 private:
  struct Param {
    size_t unit;
    // The compute type, the weight as forward computes it, and a transposed or reshaped copy of it.
    std::string type;
    std::string weight;
    std::string layout;
  };

  std::string Fresh(const char* base) { return fmt::format("{}{}", base, next_++); }
  std::string Line(std::string name, const std::string& call, const std::string& tail) {
    body_ += fmt::format("  %{} = {}{}\n", name, call, tail);
    return name;
  }
  std::string In(size_t unit) const { return fmt::format(" @layers.{}", unit); }
  std::string UnitAttr(size_t unit) const { return fmt::format("unit=\"layers.{}\"", unit); }

  void AddParams() {
    inputs_ = "%x: f32[8,8] batch \"x\"";
    outputs_ = "loss %loss";
    units_ = 2 + dice_.Pick(4);
    for (size_t u = 0; u < units_; ++u) {
      for (size_t n = 1 + dice_.Pick(3); n > 0; --n) {
        size_t i = params_.size();
        inputs_ += fmt::format(
            ", %w{0}: f32[4,8] param {0} \"layers.{1}.w{0}\" unit \"layers.{1}\"", i, u);
        params_.push_back({u, "f32", "", ""});
      }
    }
  }

  // Adds two lines with a wait that may come later.
  std::string Collective(const std::string& call, size_t unit) {
    std::string name = Fresh("c");
    Line(name + "!", call, In(unit));
    return Line(name, fmt::format("comm.wait(%{}!)", name), In(unit));
  }

  void Unshard(size_t i) {
    Param& param = params_[i];
    std::string stored = fmt::format("w{}", i);
    bool narrow = dice_.OneIn(2);
    if (narrow)
      stored =
          Line(Fresh("h"), fmt::format("aten._to_copy(%{}, dtype=bf16)", stored), In(param.unit));
    param.weight = Collective(fmt::format("comm.all_gather(%{}, over=[dp], why=unshard, {})",
                                          stored, UnitAttr(param.unit)),
                              param.unit);
    if (narrow && dice_.OneIn(2)) {
      param.weight = Line(Fresh("f"), fmt::format("aten._to_copy(%{}, dtype=f32)", param.weight),
                          In(param.unit));
      narrow = false;
    }
    param.type = narrow ? "bf16" : "f32";
    static const std::vector<std::string> kLayouts = {"aten.t(%{})", "aten.clone(%{})",
                                                      "aten.alias(%{})"};
    param.layout = Line(Fresh("t"), fmt::format(fmt::runtime(dice_.Of(kLayouts)), param.weight),
                        In(param.unit));
  }

  // x and w may have different types.
  std::string Product(const std::string& x, const std::string& w, const std::string& type,
                      size_t unit) {
    std::string left = x;
    if (type == "bf16")
      left = Line(Fresh("n"), fmt::format("aten._to_copy(%{}, dtype=bf16)", x), "");
    std::string y = Line(Fresh("m"), fmt::format("aten.mm(%{}, %{})", left, w), In(unit));
    if (type == "bf16") y = Line(Fresh("n"), fmt::format("aten._to_copy(%{}, dtype=f32)", y), "");
    return Line(Fresh("y"), fmt::format("aten.tanh(%{})", y), In(unit));
  }

  std::string Forward(size_t unit, std::string x) {
    for (size_t i = 0; i < params_.size(); ++i) {
      if (params_[i].unit != unit) continue;
      Unshard(i);
      x = Product(x, dice_.OneIn(2) ? params_[i].weight : params_[i].layout, params_[i].type, unit);
      activations_.push_back(x);
      if (dice_.OneIn(6)) x = Line(Fresh("r"), fmt::format("aten.bernoulli.p(%{}, p=0.5)", x), "");
      if (dice_.OneIn(4)) SideBranch(x, unit);
      if (dice_.OneIn(5))
        x = Collective(fmt::format("comm.all_reduce(%{}, over=[dp], op=avg, why=tensor)", x), unit);
    }
    // A parameter of an earlier unit, like tied weights.
    if (unit > 0 && dice_.OneIn(3)) {
      const Param& shared = params_[0];
      x = Product(x, shared.weight, shared.type, unit);
    }
    return x;
  }

  void SideBranch(const std::string& x, size_t unit) {
    std::string s = Line(Fresh("s"), fmt::format("aten.mean(%{})", x), In(unit));
    outputs_ += fmt::format(", metric \"{0}\" %{0}", s);
  }

  std::string Backward(size_t unit, std::string d) {
    for (size_t i = params_.size(); i-- > 0;) {
      if (params_[i].unit != unit) continue;
      std::string activation = dice_.Of(activations_);
      std::string t = Line(Fresh("t"), fmt::format("aten.t(%{})", activation), "");
      std::string grad = Line(Fresh("g"), fmt::format("aten.mm(%{}, %{})", t, d), In(unit));
      // Backward does not read every weight.
      if (!dice_.OneIn(5))
        d = Product(d, dice_.OneIn(2) ? params_[i].weight : params_[i].layout, params_[i].type,
                    unit);
      d = Reduce(i, grad, d);
    }
    return d;
  }

  // Backward reads some gradients, and one may depend on another's sum.
  std::string Reduce(size_t i, const std::string& grad, std::string d) {
    size_t unit = params_[i].unit;
    std::string sum = Collective(
        fmt::format("comm.reduce_scatter(%{}, over=[dp], why=grad, {})", grad, UnitAttr(unit)),
        unit);
    if (!dice_.OneIn(4))
      sum = Collective(
          fmt::format("comm.all_reduce(%{}, over=[rep], why=grad, {})", sum, UnitAttr(unit)), unit);
    if (dice_.OneIn(3))
      sum = Line(Fresh("a"), fmt::format("aten.mul.Scalar(%{}, other=0.5)", sum), "");
    if (dice_.OneIn(6)) {
      std::string mean = Line(Fresh("s"), fmt::format("aten.mean(%{})", sum), "");
      d = Line(Fresh("d"), fmt::format("aten.mul.Tensor(%{}, %{})", d, mean), "");
    }
    outputs_ += fmt::format(", grad {} %{}", i, sum);
    return d;
  }

  Dice dice_;
  size_t units_ = 0;
  size_t next_ = 0;
  std::vector<Param> params_;
  std::vector<std::string> activations_;
  std::string inputs_;
  std::string outputs_;
  std::string body_;
};

}  // namespace

std::string RandomTraining(uint32_t seed) { return TrainingWriter(seed).Write(); }

}  // namespace heddle
