// OptimizerOptions: clipping by global norm, and the rule that updates each parameter.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

struct ParamSpec {
  // Full name, such as `layers.0.attention.wq.weight`.
  std::string name;
  std::vector<int64_t> shape;
  // The FSDP unit of the parameter.
  std::string unit;
  bool trainable = true;
};

enum class OptimizerName : uint8_t { kAdamW, kSgd, kMuon };
// Returns PyTorch's name: `AdamW`, `SGD`, `Muon`.
std::string_view Name(OptimizerName name);

// PyTorch's implementations of AdamW: one kernel per parameter, or a loop of ATen ops. Their bits
// differ.
enum class AdamW : uint8_t { kFused, kForLoop };

// How Muon scales the learning rate of a matrix: by sqrt(max(1, rows / columns)), or by
// 0.2 sqrt(max(rows, columns)), which gives updates the size of AdamW's.
enum class MuonRate : uint8_t { kOriginal, kMatchRmsAdamW };

// The learning rate is an input of the graph, so a schedule can change it.
struct OptimizerOptions {
  OptimizerName name = OptimizerName::kAdamW;
  // With another optimizer than AdamW, every parameter is updated by a loop of ATen ops.
  AdamW implementation = AdamW::kFused;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  // Whether norms and biases, which have fewer than two dimensions, decay too.
  bool decay_vectors = true;
  // Momentum of SGD and Muon. Unset: PyTorch's defaults, which are 0 and no Nesterov momentum for
  // SGD, and Nesterov momentum of 0.95 for Muon.
  std::optional<double> momentum = {};
  std::optional<bool> nesterov = {};
  // SGD's.
  double dampening = 0;
  // Muon's: the polynomial of a Newton-Schulz iteration, the number of iterations, and the least
  // norm that a matrix is divided by.
  std::string ns_coefficients = "3.4445,-4.775,2.0315";
  int64_t ns_steps = 5;
  double ns_eps = 1e-7;
  MuonRate rate = MuonRate::kOriginal;
  // Maximum gradient norm. 0 or less turns clipping off.
  double max_norm = 1.0;

  // Returns the rule that updates a parameter. Muon is for the matrices of layers; it leaves
  // embeddings, the output head, vectors and stacks of experts to AdamW.
  OptimizerName RuleOf(const ParamSpec& param) const;
  // Whether AdamW runs as one kernel per parameter.
  bool fused() const { return name == OptimizerName::kAdamW && implementation == AdamW::kFused; }
  // Whether the parameters that `name` updates have a momentum buffer.
  bool has_momentum() const {
    return name == OptimizerName::kMuon || (name == OptimizerName::kSgd && Momentum() != 0);
  }
  double Momentum() const { return momentum.value_or(name == OptimizerName::kMuon ? 0.95 : 0.0); }
  bool Nesterov() const { return nesterov.value_or(name == OptimizerName::kMuon); }
  // The weight decay of a parameter with this number of dimensions.
  double DecayOf(size_t dims) const { return dims < 2 && !decay_vectors ? 0.0 : weight_decay; }
  // Returns the factor of the learning rate for a matrix of this shape.
  double RateFactor(std::span<const int64_t> shape) const;
  Result<std::array<double, 3>> NsCoefficients() const;
};

// Fails for options that PyTorch's classes refuse, and for Muon without a matrix to update.
Status CheckOptimizer(const OptimizerOptions& options, std::span<const ParamSpec> params);

}  // namespace heddle::run
