#include "heddle/run/runtime/device/proofs.h"

#include <ATen/TensorIndexing.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/stack.h>

#include "heddle/core/base/hash.h"
#include "heddle/run/runtime/device/same_numbers.h"

namespace heddle::run {
namespace {

// Returns the same numbers in every run, in [-1, 1).
at::Tensor Noise(at::IntArrayRef sizes, uint64_t seed, c10::Device device) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(static_cast<int64_t>(Scramble(seed ^ (i << 20)) >> 40)) * 0x1p-23F - 1;
  return at::from_blob(values.data(), sizes, at::kFloat).to(device);
}

}  // namespace

bool ProvesLoss(const LossKernel& kernel, const LossRun& run, c10::Device device) {
  constexpr int64_t kRows = 24;
  at::Tensor logits = Noise({kRows, run.columns}, 1, device).mul_(8);
  double infinity = std::numeric_limits<double>::infinity();
  logits[1].fill_(0);
  logits[2][5].fill_(80);
  logits[3].mul_(30);
  logits[4].slice(0, 1).fill_(-infinity);
  logits[5][7].fill_(infinity);
  logits[6][9].fill_(std::numeric_limits<double>::quiet_NaN());
  logits[7].mul_(1e-38);
  logits[8].fill_(-infinity);
  logits = logits.to(at::kBFloat16);
  at::Tensor labels = at::full({kRows}, 3, logits.options().dtype(at::kLong));
  for (int64_t row = 0; row < kRows; ++row) {
    auto label = static_cast<int64_t>(Scramble(static_cast<uint64_t>(row)) >> 33) % run.columns;
    labels[row].fill_(row % 6 == 5 ? run.ignored : row == 0 ? run.columns - 1 : label);
  }
  at::Tensor scale = at::full({}, 1.0 / 19, logits.options().dtype(at::kFloat));
  at::Tensor logp = at::_log_softmax(logits.to(at::kFloat), 1, false);
  // A NaN or infinite row hides all others in the sum, so the picked elements are compared, too.
  auto [sum, weight] = at::nll_loss_forward(logp.slice(0, 9), labels.slice(0, 9), {},
                                            at::Reduction::Sum, run.ignored);
  auto [all, all_weight] = at::nll_loss_forward(logp, labels, {}, at::Reduction::Sum, run.ignored);
  at::Tensor expected = at::_log_softmax_backward_data(
                            at::nll_loss_backward(scale, logp, labels, {}, at::Reduction::Sum,
                                                  run.ignored, all_weight),
                            logp, 1, at::kFloat)
                            .to(at::kBFloat16);
  at::Tensor counted = labels.ne(run.ignored);
  at::Tensor picked_by_aten =
      logp.gather(1, labels.clamp(0).unsqueeze(1)).squeeze(1).masked_select(counted);
  at::Tensor picked = at::full({kRows}, 7, scale.options());
  at::Tensor kinds = at::full({kRows}, 7, labels.options());
  for (bool in_place : {false, true}) {
    at::Tensor from = logits.clone();
    at::Tensor gradient = in_place ? from : at::full_like(from, 7);
    kernel.Run(from, gradient, labels, picked, kinds, scale);
    auto [own, own_weight] = at::nll_loss_forward(
        picked.slice(0, 9).view({-1, 1}), kinds.slice(0, 9), {}, at::Reduction::Sum, run.ignored);
    if (!SameNumbers(gradient, expected) || !SameNumbers(own, sum) ||
        !SameNumbers(picked.masked_select(counted), picked_by_aten) ||
        !kinds.eq(run.ignored).equal(counted.logical_not()))
      return false;
  }
  return true;
}

bool ProvesAdamW(const AdamWKernel& kernel, const AdamWRun& run, c10::Device device) {
  std::vector<int64_t> sizes = {1, 3, 4095, 4096, 4097, 100003};
  at::Tensor lr = at::full({}, 3e-4, at::TensorOptions().dtype(at::kFloat).device(device));
  at::Tensor clip = run.clip ? at::full_like(lr, 0.37) : at::Tensor();
  // Gradients of both types, with and without a remainder after whole blocks.
  auto cast = [](size_t i, const at::Tensor& grad) {
    return i % 4 == 0 || i % 4 == 3 ? grad : grad.to(at::kBFloat16);
  };
  for (double number : {1.0, 7.0, 1000.0}) {
    at::Tensor step = at::full_like(lr, number);
    std::vector<AdamWKernel::Update> own;
    std::vector<AdamWKernel::Update> atens;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor grad = Noise({sizes[i]}, 10 * i + 1, device).mul_(1e-2);
      // Parameters that never had a gradient, and some with a tiny one.
      grad.slice(0, 0, std::nullopt, 7).fill_(0);
      grad.slice(0, 1, std::nullopt, 11).mul_(1e-30);
      AdamWKernel::Update update{Noise({sizes[i]}, 10 * i, device), grad,
                                 Noise({sizes[i]}, 10 * i + 2, device).mul_(1e-3),
                                 Noise({sizes[i]}, 10 * i + 3, device).abs_().mul_(1e-5)};
      update.grad = cast(i, update.grad);
      update.square.slice(0, 0, std::nullopt, 7).fill_(0);
      // Parameters with and without a copy.
      if (i != 3) update.copy = at::full(sizes[i], 7, grad.options().dtype(at::kBFloat16));
      own.push_back({update.param.clone(), update.grad, update.average.clone(),
                     update.square.clone(), update.copy});
      atens.push_back(update);
    }
    kernel.Run(own, lr, step, clip);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const AdamWKernel::Update& u = atens[i];
      at::Tensor grad = u.grad.to(at::kFloat);
      if (clip.defined()) grad = at::mul(grad, clip);
      at::_fused_adamw_({u.param}, {grad}, {u.average}, {u.square}, {}, {step}, lr, run.beta1,
                        run.beta2, run.weight_decay, run.eps, /*amsgrad=*/false,
                        /*maximize=*/false);
      if (!SameNumbers(own[i].param, u.param) || !SameNumbers(own[i].average, u.average) ||
          !SameNumbers(own[i].square, u.square) ||
          (u.copy.defined() && !SameNumbers(u.copy, u.param.to(at::kBFloat16))))
        return false;
    }
  }
  return true;
}

bool ProvesSquaredNorm(const GroupKernel& kernel, c10::Device device) {
  at::NoGradGuard no_grad;
  Tensors inputs;
  // Chunks have 65,536 elements. Sizes that are not multiples of 4 have another order of additions.
  for (int64_t size : {1, 3, 4, 2047, 2048, 65535, 65536, 65540, 300001, 1310720})
    inputs.push_back(Noise({size}, static_cast<uint64_t>(size), device).mul_(3));
  inputs.push_back(inputs[3].clone());
  inputs.back()[5].fill_(std::numeric_limits<double>::infinity());
  inputs.push_back(inputs[7].clone());
  inputs.back()[65539].fill_(std::numeric_limits<double>::quiet_NaN());
  // More chunks than threads of a block.
  inputs.push_back(Noise({65537}, 5, device).repeat({520}));
  size_t wide = inputs.size();
  for (size_t i = 0; i < wide; ++i) inputs.push_back(inputs[i].to(at::kBFloat16));
  at::Tensor squares = at::empty({static_cast<int64_t>(inputs.size())}, inputs[0].options());
  kernel.Run(inputs, {&squares, 1});
  Tensors cast;
  for (const at::Tensor& input : inputs) cast.push_back(input.to(at::kFloat));
  at::Tensor norms = at::stack(at::_foreach_norm(cast, 2));
  return SameNumbers(squares, at::mul(norms, norms));
}

}  // namespace heddle::run
