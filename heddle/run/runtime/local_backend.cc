#include "heddle/run/runtime/local_backend.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>

#include "heddle/core/ir/positions.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/aten/attention_part.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/aten/ring_attention.h"

namespace heddle::run {
namespace {

// Copies even if host and device share memory.
at::Tensor CopyTo(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

class LocalStep : public Step {
 public:
  LocalStep(const RunPlan& plan, NodeId node)
      : Step(Turn::kAlone), plan_(plan), node_(node), op_(plan.graph()[node].op) {
    SymbolTable scratch;
    OpArgs args(plan.graph().op(node), plan.graph().attrs(node), plan.mesh(), scratch, {});
    if (op_ == op::shard_slice) dim_ = args.Int("dim");
    if (op_ == op::shard_slice || op_ == op::shard_bound) over_ = args.AxesOf("over");
    if (op_ == op::shard_bound) {
      size_ = args.Int("size");
      end_ = args.Bool("end");
    }
  }

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    plan_.slots().Load(node_, values, scratch.operands);
    scratch.results.assign(1, Result(plan_.ranks()[at], scratch.operands));
    plan_.slots().Store(node_, scratch.results, values);
  }

 private:
  at::Tensor Result(int64_t rank, std::span<const at::Tensor* const> operands) const {
    if (op_ == op::shard_bound) {
      Part part = PartAt(size_, over_, plan_.mesh(), rank);
      // Created on the device: a CUDA graph cannot record a copy from the host.
      return at::full({}, part.begin + (end_ ? part.size : 0),
                      at::TensorOptions().dtype(at::kLong).device(plan_.device()));
    }
    if (op_ == op::shard_slice) {
      Part part = PartAt(operands[0]->size(dim_), over_, plan_.mesh(), rank);
      return operands[0]->narrow(dim_, part.begin, part.size).clone(at::MemoryFormat::Contiguous);
    }
    return CopyTo(*operands[0], op_ == op::mem_offload ? c10::kCPU : plan_.device());
  }

  const RunPlan& plan_;
  NodeId node_;
  OpId op_;
  Axes over_;
  int64_t dim_ = 0;
  // For shard.bound.
  int64_t size_ = 0;
  bool end_ = false;
};

// Causal attention of this rank's queries.
class AttentionStep : public Step {
 public:
  AttentionStep(const RunPlan& plan, NodeId node) : Step(Turn::kAlone), plan_(plan), node_(node) {
    const Attrs& attrs = plan.graph().attrs(node);
    over_ = std::get<Axes>(*attrs.Find("over"));
    const AttrValue* step = attrs.Find("step");
    if (step != nullptr && std::holds_alternative<int64_t>(*step)) step_ = std::get<int64_t>(*step);
    const AttrValue* scale = attrs.Find("scale");
    if (scale != nullptr && std::holds_alternative<double>(*scale))
      scale_ = std::get<double>(*scale);
  }

  static bool Takes(OpId op) {
    return op == op::shard_attention || op == op::shard_attention_backward;
  }

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    plan_.slots().Load(node_, values, scratch.operands);
    std::span<const at::Tensor* const> o = scratch.operands;
    if (plan_.graph()[node_].op == op::shard_attention) {
      auto results = step_ ? AttendRing(RingPartOf(at, *o[0]), *o[0], *o[1], *o[2], scale_)
                           : AttendPart(PartOf(at, *o[1], *o[3]), *o[0], *o[1], *o[2], scale_);
      scratch.results.assign(results.begin(), results.end());
    } else {
      AttendedPart tensors{*o[0], *o[1], *o[2], *o[3], *o[4], *o[5]};
      auto results = step_ ? AttendRingBackward(RingPartOf(at, *o[1]), tensors, scale_)
                           : AttendPartBackward(PartOf(at, *o[2], *o[6]), tensors, scale_);
      scratch.results.assign(results.begin(), results.end());
    }
    plan_.slots().Store(node_, scratch.results, values);
  }

 private:
  QueryPart PartOf(size_t at, const at::Tensor& key, const at::Tensor& documents) const {
    int64_t positions = key.size(2);
    return {PositionsAt(positions, over_, plan_.mesh(), plan_.ranks()[at]),
            PositionOrder(positions, over_, plan_.mesh()), documents,
            /*joins_documents=*/!key.is_cpu()};
  }

  RingPart RingPartOf(size_t at, const at::Tensor& query) const {
    return RingPartAt(query.size(2), over_[0], plan_.mesh(), plan_.ranks()[at], *step_);
  }

  const RunPlan& plan_;
  NodeId node_;
  Axes over_;
  // For a step of ring attention.
  std::optional<int64_t> step_;
  std::optional<double> scale_;
};

// Merges attention over two parts of the keys.
class MergeStep : public Step {
 public:
  MergeStep(const RunPlan& plan, NodeId node)
      : Step(Turn::kAlone),
        plan_(plan),
        node_(node),
        type_(ToScalarType(
            plan.graph().types().dtype(plan.graph().type(plan.graph()[node].first_result)))) {}

  void Run(size_t, Tensors& values, Scratch& scratch) const override {
    plan_.slots().Load(node_, values, scratch.operands);
    std::span<const at::Tensor* const> o = scratch.operands;
    auto results = MergeAttention(*o[0], *o[1], *o[2], *o[3], type_);
    scratch.results.assign(results.begin(), results.end());
    plan_.slots().Store(node_, scratch.results, values);
  }

 private:
  const RunPlan& plan_;
  NodeId node_;
  at::ScalarType type_;
};

// Counts on a GPU. ATen's op reads the largest number on the host, which cannot be recorded.
class CountStep : public Step {
 public:
  CountStep(const RunPlan& plan, NodeId node)
      : Step(Turn::kAlone),
        plan_(plan),
        node_(node),
        size_(plan.graph().types().dims(ResultType(plan, node))[0]) {}

  // Whether a node counts without weights, into a known number of bins.
  static bool Takes(const RunPlan& plan, NodeId node) {
    return plan.graph()[node].op == op::bincount && !plan.device().is_cpu() &&
           !plan.graph().operands(node)[1] &&
           !IsSymbol(plan.graph().types().dims(ResultType(plan, node))[0]);
  }

  void Run(size_t, Tensors& values, Scratch& scratch) const override {
    plan_.slots().Load(node_, values, scratch.operands);
    scratch.results.assign(1, CountNumbers(*scratch.operands[0], size_));
    plan_.slots().Store(node_, scratch.results, values);
  }

 private:
  static TypeId ResultType(const RunPlan& plan, NodeId node) {
    return plan.graph().type(plan.graph()[node].first_result);
  }

  const RunPlan& plan_;
  NodeId node_;
  int64_t size_;
};

}  // namespace

at::Tensor CountNumbers(const at::Tensor& numbers, int64_t size) {
  at::Tensor bins = at::arange(size, numbers.options()).unsqueeze(1);
  return at::eq(bins, numbers.unsqueeze(0)).sum(1);
}

Result<CompiledNodes> LocalBackend::Compile(NodeId node) {
  if (CountStep::Takes(plan_, node)) return CompiledNodes{std::make_unique<CountStep>(plan_, node)};
  OpId op = plan_.graph()[node].op;
  if (AttentionStep::Takes(op)) return CompiledNodes{std::make_unique<AttentionStep>(plan_, node)};
  if (op == op::shard_merge_attention)
    return CompiledNodes{std::make_unique<MergeStep>(plan_, node)};
  bool own = op == op::shard_slice || op == op::shard_bound || op == op::mem_offload ||
             op == op::mem_reload;
  return own ? CompiledNodes{std::make_unique<LocalStep>(plan_, node)} : CompiledNodes{};
}

}  // namespace heddle::run
