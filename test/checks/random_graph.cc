#include "test/checks/random_graph.h"

#include <array>

#include <fmt/core.h>

namespace heddle {
namespace {

constexpr const char* kGroups[] = {"dp", "tp", "dp,tp", "tp,dp"};

class LocalWriter {
 public:
  explicit LocalWriter(uint32_t seed) : dice_(seed), trains_(!dice_.OneIn(3)) {}

  std::string Write() {
    AddInputs();
    for (size_t nodes = 10 + dice_.Pick(60); nodes > 0; --nodes) AddAny();
    while (!flights_.empty()) Land(0);
    if (trains_) AddUpdates();
    AddMetrics();
    return fmt::format("heddle 1 local\nmesh [dp=2,tp=2]\ngraph @g({}) -> ({}) {{\n{}}}\n", inputs_,
                       outputs_, body_);
  }

 private:
  // Values of the same kind are interchangeable.
  enum Kind {
    // f32[8,8], bf16[8,8], f32[4,8], f32[], and f32[8,8] in host memory.
    kSquare,
    kNarrow,
    kPart,
    kNumber,
    kHost,
    kKinds
  };
  struct Flight {
    std::string name;
    std::vector<Kind> kinds;
  };
  struct Said {
    Kind kind;
    std::string call;
  };

  // --- Lines

  std::string Any(Kind kind) { return "%" + dice_.Of(values_[kind]); }
  // One after the other: C++ does not specify the order of arguments.
  std::string Two(Kind kind) {
    std::string first = Any(kind);
    return first + ", " + Any(kind);
  }
  std::string Fresh() { return fmt::format("v{}", next_++); }
  std::string Tail() {
    std::string tail = dice_.OneIn(3) ? fmt::format(" @layers.{}", dice_.Pick(3)) : "";
    if (dice_.OneIn(8)) tail += dice_.OneIn(2) ? " keep=must_save" : " keep=prefer_recompute";
    return tail;
  }
  void Add(Kind kind, const std::string& call) {
    std::string name = Fresh();
    body_ += fmt::format("  %{} = {}{}\n", name, call, Tail());
    values_[kind].push_back(name);
  }
  // Adds a call without effects, which may be repeated later.
  void Say(Kind kind, const std::string& call) {
    said_.push_back({kind, call});
    Add(kind, call);
  }
  void Start(const std::string& call, std::vector<Kind> kinds) {
    std::string name = Fresh();
    std::string stream = dice_.OneIn(3) ? " stream=1" : "";
    body_ += fmt::format("  %{}! = {}{}\n", name, call, stream);
    flights_.push_back({name, std::move(kinds)});
    if (dice_.OneIn(2)) Land(flights_.size() - 1);
  }
  void Land(size_t at) {
    Flight flight = flights_[at];
    flights_.erase(flights_.begin() + static_cast<ptrdiff_t>(at));
    std::string results;
    for (Kind kind : flight.kinds) {
      std::string name = Fresh();
      results += fmt::format("{}%{}", results.empty() ? "" : ", ", name);
      values_[kind].push_back(name);
    }
    body_ += fmt::format("  {} = comm.wait(%{}!){}\n", results, flight.name, Scope());
  }
  std::string Scope() { return dice_.OneIn(3) ? fmt::format(" @layers.{}", dice_.Pick(3)) : ""; }

  // --- Inputs and outputs

  void AddInput(const std::string& text) { inputs_ += (inputs_.empty() ? "" : ", ") + text; }
  void AddOutput(const std::string& text) { outputs_ += (outputs_.empty() ? "" : ", ") + text; }

  void AddInputs() {
    for (const char* name : {"x", "y"}) {
      AddInput(fmt::format("%{}: f32[8,8]{}", name, trains_ ? " batch" : ""));
      values_[kSquare].push_back(name);
    }
    params_ = trains_ ? 1 + dice_.Pick(3) : 0;
    for (size_t i = 0; i < params_; ++i) {
      AddInput(fmt::format("%w{0}: f32[4,8] param {0} \"w{0}\" unit \"u{0}\"", i));
      AddInput(fmt::format("%m{0}: f32[4,8] opt {0} \"exp_avg\"", i));
      AddInput(fmt::format("%q{0}: f32[4,8] opt {0} \"exp_avg_sq\"", i));
      AddInput(fmt::format("%s{0}: f32[] opt {0} \"step\"", i));
    }
    Say(kPart, fmt::format("shard.slice({}, over=[dp])", Any(kSquare)));
    Say(kNarrow, fmt::format("aten._to_copy({}, dtype=bf16)", Any(kSquare)));
    Say(kNumber, fmt::format("aten.sum({})", Any(kSquare)));
  }

  void AddMetrics() {
    for (size_t i = 4 + dice_.Pick(12); i > 0; --i) {
      std::string value = Any(static_cast<Kind>(dice_.Pick(kHost)));
      AddOutput(trains_ ? fmt::format("metric \"m{}\" {}", i, value) : value);
    }
  }

  // Adds one update of all parameters. It takes over the storage of parameters, states and
  // gradients.
  void AddUpdates() {
    body_ += " opt:\n";
    std::string lists[5];
    std::string results[4];
    auto append = [](std::string& list, const std::string& name) {
      list += (list.empty() ? "%" : ", %") + name;
    };
    for (size_t i = 0; i < params_; ++i) {
      std::string grad = fmt::format("g{}", i);
      body_ += fmt::format("  %{} = aten.mul.Scalar({}, other=0.5)\n", grad, Any(kPart));
      for (size_t j = 0; j < 5; ++j)
        append(lists[j], j == 1 ? grad : fmt::format("{}{}", "w mqs"[j], i));
      for (size_t j = 0; j < 4; ++j) append(results[j], fmt::format("{}{}.new", "wgmq"[j], i));
      for (char state : {'w', 'm', 'q'})
        AddOutput(fmt::format("update %{0}{1} -> %{0}{1}.new", state, i));
    }
    body_ += fmt::format(
        "  {}, {}, {}, {} = aten._fused_adamw([{}], [{}], [{}], [{}], [], [{}], lr=0.1, beta1=0.9, "
        "beta2=0.95, weight_decay=0.1, eps=1e-08, amsgrad=false, maximize=false)\n",
        results[0], results[1], results[2], results[3], lists[0], lists[1], lists[2], lists[3],
        lists[4]);
  }

  // --- Nodes

  void AddAny() {
    if (dice_.OneIn(10)) body_ += dice_.OneIn(2) ? " bwd:\n" : " fwd:\n";
    if (!flights_.empty() && dice_.OneIn(4)) return Land(dice_.Pick(flights_.size()));
    switch (dice_.Pick(10)) {
      case 0:
      case 1: return AddView();
      case 2:
      case 3:
      case 4: return AddArithmetic();
      case 5: return AddCollective();
      case 6: return params_ > 0 ? AddUnshard() : AddCollective();
      case 7: return AddMove();
      case 8: return AddRandom();
      default: {
        Said again = dice_.Of(said_);
        return Add(again.kind, again.call);
      }
    }
  }

  void AddView() {
    std::string x = Any(kSquare);
    switch (dice_.Pick(9)) {
      case 0: return Say(kSquare, fmt::format("aten.t({})", x));
      case 1: return Say(kSquare, fmt::format("aten.reshape({}, shape=[8,8])", x));
      case 2: return Say(kSquare, fmt::format("aten.alias({})", x));
      case 3: return Say(kSquare, fmt::format("aten.transpose.int({}, dim0=-1, dim1=0)", x));
      case 4: return Say(kSquare, fmt::format("aten.permute({}, dims=[1,0])", x));
      case 5: return Say(kSquare, fmt::format("aten.slice.Tensor({}, dim=1)", x));
      case 6: return Say(kSquare, fmt::format("aten.expand({}, size=[8,8])", x));
      case 7: {
        size_t start = dice_.Pick(5);
        return Say(kPart, fmt::format("aten.slice.Tensor({}, dim=0, start={}, end={})", x, start,
                                      start + 4));
      }
      default: return AddCube(x);
    }
  }

  // Reshapes a square to a cube, transposes it twice, and reshapes it back.
  void AddCube(const std::string& x) {
    static const std::vector<std::string> kTurns = {"1,2,0", "2,0,1", "0,2,1", "1,0,2"};
    std::string cube = fmt::format("%{}", Fresh());
    body_ += fmt::format("  {} = aten.reshape({}, shape=[4,4,4])\n", cube, x);
    for (int i = 0; i < 2; ++i) {
      std::string turned = fmt::format("%{}", Fresh());
      body_ += fmt::format("  {} = aten.permute({}, dims=[{}])\n", turned, cube, dice_.Of(kTurns));
      cube = turned;
    }
    Say(kSquare, fmt::format("aten.reshape({}, shape=[8,8])", cube));
  }

  void AddArithmetic() {
    std::string x = Any(kSquare);
    switch (dice_.Pick(12)) {
      case 0: {
        // Keeps numbers small.
        std::string name = Fresh();
        body_ += fmt::format("  %{} = aten.mm({}, {})\n", name, x, Any(kSquare));
        return Say(kSquare, fmt::format("aten.tanh(%{})", name));
      }
      case 1:
      case 2:
      case 3: return Say(kSquare, fmt::format("aten.add.Tensor({}, {})", x, Any(kSquare)));
      case 4: return Say(kSquare, fmt::format("aten.mul.Tensor({}, {})", x, Any(kNumber)));
      case 5: return Say(kSquare, fmt::format("aten.sub.Tensor({}, {})", x, Any(kNarrow)));
      case 6: return Say(kSquare, fmt::format("aten.sigmoid({})", x));
      case 7: return Say(kNumber, fmt::format("aten.mean({})", x));
      case 8: return Say(kNarrow, fmt::format("aten._to_copy({}, dtype=bf16)", x));
      case 9: return Say(kSquare, fmt::format("aten._to_copy({}, dtype=f32)", Any(kNarrow)));
      case 10: {
        const char* factor = dice_.OneIn(2) ? "0.5" : "1.5";
        return Say(kPart, fmt::format("aten.mul.Scalar({}, other={})", Any(kPart), factor));
      }
      default: return Say(kSquare, fmt::format("aten.cat([{}])", Two(kPart)));
    }
  }

  void AddCollective() {
    std::string group = kGroups[dice_.Pick(2)];
    switch (dice_.Pick(6)) {
      case 0: {
        std::string operands;
        std::vector<Kind> kinds;
        for (size_t n = 1 + dice_.Pick(3); n > 0; --n) {
          kinds.push_back(static_cast<Kind>(dice_.Pick(kHost)));
          operands += Any(kinds.back()) + ", ";
        }
        const char* op = std::array{"", ", op=max", ", op=avg", ", scale=0.5"}[dice_.Pick(4)];
        return Start(fmt::format("comm.all_reduce({}over=[{}]{}, why=tensor)", operands,
                                 kGroups[dice_.Pick(4)], op),
                     kinds);
      }
      case 1: {
        if (dice_.Pick(3) != 0)
          return Start(fmt::format("comm.all_gather({}, over=[{}], why=tensor)", Two(kPart), group),
                       {kSquare, kSquare});
        // A product that reads gathered rows.
        std::string name = Fresh();
        body_ += fmt::format(
            "  %{0}! = comm.all_gather({1}, over=[{2}], why=tensor)\n  %{0} = comm.wait(%{0}!)\n",
            name, Any(kPart), group);
        return Say(kSquare, fmt::format("aten.mm(%{}, {})", name, Any(kSquare)));
      }
      case 2:
        return Start(fmt::format("comm.reduce_scatter({}, over=[{}], why=grad{})", Any(kSquare),
                                 group, Unit()),
                     {kPart});
      case 3: {
        std::string name = Fresh();
        body_ += fmt::format(
            "  %{0}! = comm.all_to_all({1}, over=[{2}], split_dim=0, concat_dim=1, why=tensor)\n"
            "  %{0} = comm.wait(%{0}!)\n",
            name, Any(kSquare), group);
        return Say(kSquare, fmt::format("aten.reshape(%{}, shape=[8,8])", name));
      }
      case 4: {
        Kind kind = static_cast<Kind>(dice_.Pick(kHost));
        return Start(fmt::format("comm.shift({}, over=[{}], why=context)", Any(kind),
                                 kGroups[dice_.Pick(4)]),
                     {kind});
      }
      default: {
        std::string name = Fresh();
        body_ += fmt::format("  %{} = shard.bound(size=7, over=[{}])\n", name, group);
        return Say(kNumber, fmt::format("aten._to_copy(%{}, dtype=f32)", name));
      }
    }
  }

  // Adds FSDP's ops on a parameter before its use. There are few variants, so some occur twice.
  void AddUnshard() {
    std::string stored = fmt::format("%w{}", dice_.Pick(params_));
    Kind kind = kSquare;
    if (dice_.OneIn(2)) {
      std::string name = Fresh();
      body_ += fmt::format("  %{} = aten._to_copy({}, dtype=bf16)\n", name, stored);
      stored = "%" + name;
      kind = kNarrow;
    }
    Start(fmt::format("comm.all_gather({}, over=[{}], why=unshard{})", stored,
                      kGroups[dice_.Pick(2)], Unit()),
          {kind});
  }

  // One of two units, or none.
  std::string Unit() const {
    return next_ % 5 == 0 ? "" : fmt::format(", unit=\"u{}\"", next_ % 2);
  }

  void AddMove() {
    if (!values_[kHost].empty() && dice_.OneIn(2))
      return Start(fmt::format("mem.reload({})", Any(kHost)), {kSquare});
    Start(fmt::format("mem.offload({})", Any(kSquare)), {kHost});
  }

  void AddRandom() {
    switch (dice_.Pick(3)) {
      case 0: return Add(kSquare, fmt::format("aten.rand_like({})", Any(kSquare)));
      case 1: return Add(kSquare, fmt::format("aten.bernoulli.p({}, p=0.5)", Any(kSquare)));
      default: {
        std::string name = Fresh();
        body_ += fmt::format("  %{0}, %{0}.mask = aten.native_dropout({1}, p=0.25, train=true)\n",
                             name, Any(kSquare));
        values_[kSquare].push_back(name);
      }
    }
  }

  Dice dice_;
  // Whether the graph has parameters, updates and roles.
  bool trains_;
  size_t params_ = 0;
  size_t next_ = 0;
  std::string inputs_;
  std::string outputs_;
  std::string body_;
  std::vector<std::string> values_[kKinds];
  std::vector<Flight> flights_;
  std::vector<Said> said_;
};

}  // namespace

std::string RandomLocalGraph(uint32_t seed) { return LocalWriter(seed).Write(); }

}  // namespace heddle
