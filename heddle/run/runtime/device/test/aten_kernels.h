// Does the work of kernels with ATen, on a CPU.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "heddle/run/runtime/device/kernel_backend.h"

namespace heddle::run {

class AtenKernels : public Kernels {
 public:
  class Loss : public LossKernel {
   public:
    void Run(const at::Tensor& logits, const at::Tensor& gradient, const at::Tensor& labels,
             const at::Tensor& picked, const at::Tensor& kinds,
             const at::Tensor& scale) const override {
      at::Tensor rows = logits.reshape({labels.numel(), -1});
      at::Tensor logp = at::_log_softmax(rows.to(at::kFloat), 1, false);
      auto [sum, weight] = at::nll_loss_forward(logp, labels, {}, at::Reduction::Sum, -100);
      at::Tensor nll =
          at::nll_loss_backward(scale, logp, labels, {}, at::Reduction::Sum, -100, weight);
      at::Tensor back = at::_log_softmax_backward_data(nll, logp, 1, at::kFloat);
      gradient.copy_(back.to(at::kBFloat16).view(gradient.sizes()));
      picked.copy_(logp.gather(1, at::clamp(labels, 0).unsqueeze(1)).squeeze(1));
      kinds.copy_(at::where(labels.eq(-100), labels, at::zeros_like(labels)));
    }
  };
  class Updates : public AdamWKernel {
   public:
    explicit Updates(const AdamWRun& run) : run_(run) {}
    void Run(std::span<const Update> updates, const at::Tensor& lr, const at::Tensor& step,
             const at::Tensor& clip) const override {
      for (const Update& u : updates) {
        at::Tensor grad = u.grad.to(at::kFloat);
        if (clip.defined()) grad = at::mul(grad, clip);
        at::_fused_adamw_({u.param}, {grad}, {u.average}, {u.square}, {}, {step}, lr, run_.beta1,
                          run_.beta2, run_.weight_decay, run_.eps, false, false);
        if (u.copy.defined()) u.copy.copy_(u.param);
      }
    }

   private:
    AdamWRun run_;
  };

  std::unique_ptr<LossKernel> Loss(const LossRun&) override {
    ++made;
    return has ? std::make_unique<class Loss>() : nullptr;
  }
  std::unique_ptr<AdamWKernel> AdamW(const AdamWRun& run) override {
    ++made;
    return has ? std::make_unique<Updates>(run) : nullptr;
  }

  class Norm : public GroupKernel {
   public:
    explicit Norm(bool& narrow) : narrow_(narrow) {}
    void Run(std::span<const at::Tensor> inputs,
             std::span<const at::Tensor> outputs) const override {
      Tensors wide;
      for (const at::Tensor& input : inputs) wide.push_back(input.to(at::kFloat));
      narrow_ = inputs[0].scalar_type() == at::kBFloat16;
      at::Tensor norms = at::stack(at::_foreach_norm(wide, 2));
      outputs[0].copy_(at::mul(norms, norms));
    }

   private:
    bool& narrow_;
  };
  std::unique_ptr<GroupKernel> SquaredNorm() override {
    return has ? std::make_unique<Norm>(narrow) : nullptr;
  }
  std::shared_ptr<const GroupKernel> Program(const KernelProgram&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> NormWeight(int64_t, DType) override { return nullptr; }

  class Cast : public GroupKernel {
   public:
    explicit Cast(size_t& casts) : casts_(casts) {}
    void Run(std::span<const at::Tensor> inputs,
             std::span<const at::Tensor> outputs) const override {
      for (size_t i = 0; i < inputs.size(); ++i) outputs[i].copy_(inputs[i]);
      casts_ += inputs.size();
    }

   private:
    size_t& casts_;
  };
  std::shared_ptr<const GroupKernel> IndexAdd(const IndexAddRun&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> Casts(DType) override {
    return has ? std::make_shared<Cast>(casts) : nullptr;
  }
  std::shared_ptr<const GroupKernel> Matmul(const MatmulShape&) override { return nullptr; }

  bool has = true;
  int made = 0;
  // Whether the norm has read bf16.
  bool narrow = false;
  // Number of tensors that lists of casts have cast.
  size_t casts = 0;

 protected:
  void Refuse(const std::string&, std::string_view) const override {}
};

}  // namespace heddle::run
