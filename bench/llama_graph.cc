#include "bench/llama_graph.h"

#include <fmt/core.h>

#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

constexpr int64_t kDp = 8;

class Builder {
 public:
  explicit Builder(const LlamaGraphOptions& options) : o_(options) {
    module_.mesh = Mesh({{"dp", kDp}, {"tp", options.tp}});
    module_.graphs.emplace_back("step", Ops());
  }

  Module Build() {
    size_t layers = CountLayers();
    AddInputs(layers);
    ValueId x = Call(op::embedding, {Unshard(table_), tokens_});
    x = Call(op::view, {x}, {{"size", Dims{o_.tokens, o_.dim}}});
    x = Scatter(x);
    std::vector<LayerState> states;
    for (size_t i = 0; i < layers; ++i) {
      Scope(fmt::format("layers.{}", i));
      states.push_back(Forward(layers_[i], x));
      x = states.back().out;
    }
    Scope("output");
    ValueId grad = Loss(x);
    phase_ = Phase::kBackward;
    for (size_t i = layers; i-- > 0;) {
      Scope(fmt::format("layers.{}", i));
      grad = Backward(layers_[i], states[i], grad);
    }
    return std::move(module_);
  }

 private:
  struct Layer {
    // wq, wk, wv, wo, w1, w2, w3, attention_norm, ffn_norm.
    std::vector<ValueId> params;
    int64_t first_index = 0;
  };
  struct LayerState {
    std::vector<ValueId> weights;
    ValueId in, normed, q, k, v, attention, lse, hidden, normed2, gate, up, product, out;
  };

  Graph& graph() { return module_.graphs[0]; }

  size_t CountLayers() {
    size_t nodes_per_layer = o_.tp > 1 ? 189 : 173;
    return std::max<size_t>(1, (o_.nodes + nodes_per_layer - 1) / nodes_per_layer);
  }

  ValueId AddParam(Dims dims, const std::string& name, const std::string& unit) {
    Input input;
    input.role = InputRole::kParam;
    input.index = params_++;
    input.label = name;
    input.unit = unit;
    return graph().AddInput(std::move(input), graph().types().Tensor(DType::kF32, dims), name);
  }

  void AddInputs(size_t layers) {
    int64_t d = o_.dim;
    int64_t local = d / o_.tp;
    int64_t ffn = o_.ffn / o_.tp;
    table_ = AddParam({o_.vocab / kDp, d}, "tok_embeddings.weight", "tok_embeddings");
    for (size_t i = 0; i < layers; ++i) {
      std::string unit = fmt::format("layers.{}", i);
      Layer layer;
      layer.first_index = params_;
      auto add = [&](Dims dims, const char* name) {
        layer.params.push_back(
            AddParam(std::move(dims), fmt::format("{}.{}.weight", unit, name), unit));
      };
      for (const char* name : {"wq", "wk", "wv"}) add({local / kDp, d}, name);
      add({d / kDp, local}, "wo");
      add({ffn / kDp, d}, "w1");
      add({d / kDp, ffn}, "w2");
      add({ffn / kDp, d}, "w3");
      add({d / kDp}, "attention_norm");
      add({d / kDp}, "ffn_norm");
      layers_.push_back(std::move(layer));
    }
    Input batch;
    batch.role = InputRole::kBatch;
    tokens_ =
        graph().AddInput(batch, graph().types().Tensor(DType::kI64, Dims{1, o_.tokens}), "tokens");
    Input buffer;
    buffer.role = InputRole::kBuffer;
    rope_ = graph().AddInput(
        buffer, graph().types().Tensor(DType::kC64, Dims{o_.tokens, 1, o_.dim / o_.heads / 2}),
        "rope");
  }

  void Scope(const std::string& name) { scope_ = graph().InternScope(name); }

  ValueId Call(OpId op, std::vector<ValueId> operands, std::vector<Attr> list = {},
               size_t results = 1) {
    Attrs attrs;
    attrs.list = std::move(list);
    for (const Arg& arg : Ops()[op].schema.args) {
      if (IsListOperand(arg.kind))
        attrs.list_sizes.push_back(static_cast<uint32_t>(operands.size()));
    }
    AttrsId id = graph().InternAttrs(attrs);
    OpArgs args(Ops()[op], attrs, module_.mesh, graph().types().symbols(),
                OperandTypes(graph(), operands));
    Result<Types> types = InferTypes(args);
    HEDDLE_CHECK(types.ok() && types->size() >= results,
                 fmt::format("{}: {}", Ops()[op].name(), Format(types.diagnostics())));
    std::string base(Ops()[op].name());
    base = base.substr(base.find('.') + 1);
    std::vector<std::string> names;
    std::vector<ResultSpec> specs;
    for (size_t i = 0; i < types->size(); ++i)
      names.push_back(fmt::format("{}_{}", base, next_name_++));
    for (size_t i = 0; i < types->size(); ++i)
      specs.push_back({.type = graph().types().Intern((*types)[i]), .name = names[i]});
    NodeSpec spec;
    spec.op = op;
    spec.operands = operands;
    spec.attrs = id;
    spec.results = specs;
    spec.scope = scope_;
    spec.phase = phase_;
    spec.stream = stream_;
    return graph()[graph().Append(spec)].first_result;
  }
  static ValueId Next(ValueId v, size_t i) { return ValueId(v.index() + i); }
  ValueId Cast(ValueId v, DType dtype) { return Call(op::_to_copy, {v}, {{"dtype", dtype}}); }
  ValueId View(ValueId v, Dims size) { return Call(op::view, {v}, {{"size", std::move(size)}}); }
  ValueId Transpose(ValueId v, int64_t a, int64_t b) {
    return Call(op::transpose_int, {v}, {{"dim0", a}, {"dim1", b}});
  }
  ValueId Mm(ValueId a, ValueId b) { return Call(op::mm, {a, b}); }
  ValueId T(ValueId v) { return Call(op::t, {v}); }

  ValueId Collective(OpId op, std::vector<ValueId> operands, Why why, AxisId axis, uint8_t stream,
                     const std::string& unit) {
    std::vector<Attr> attrs{{"over", Axes(axis)}, {"why", why}};
    if (!unit.empty()) attrs.push_back({"unit", unit});
    stream_ = stream;
    ValueId handle = Call(op, std::move(operands), std::move(attrs));
    stream_ = 0;
    return Call(op::comm_wait, {handle});
  }
  // Sequence parallelism around a block; nothing without tensor parallelism.
  ValueId Gather(ValueId v) {
    return o_.tp > 1 ? Collective(op::comm_all_gather, {v}, Why::kTensor, 1, 0, "") : v;
  }
  ValueId Scatter(ValueId v) {
    return o_.tp > 1 ? Collective(op::comm_reduce_scatter, {v}, Why::kTensor, 1, 0, "") : v;
  }
  ValueId Unshard(ValueId param) {
    return Collective(op::comm_all_gather, {Cast(param, DType::kBF16)}, Why::kUnshard, 0, 1,
                      "tok_embeddings");
  }

  std::vector<ValueId> UnshardAll(const Layer& layer) {
    std::vector<ValueId> casts;
    for (ValueId param : layer.params) casts.push_back(Cast(param, DType::kBF16));
    return ForUnit(op::comm_all_gather, casts, Why::kUnshard, 1);
  }

  // Adds the collectives of a unit: one for all tensors, or one per tensor.
  std::vector<ValueId> ForUnit(OpId op, const std::vector<ValueId>& tensors, Why why,
                               uint8_t stream) {
    std::string unit(graph().scope_name(scope_));
    std::vector<ValueId> results;
    if (o_.lowered) {
      for (ValueId v : tensors) results.push_back(Collective(op, {v}, why, 0, 0, unit));
      return results;
    }
    ValueId first = Collective(op, tensors, why, 0, stream, unit);
    for (size_t i = 0; i < tensors.size(); ++i) results.push_back(Next(first, i));
    return results;
  }

  ValueId Norm(ValueId x, ValueId weight) {
    ValueId f = Cast(x, DType::kF32);
    ValueId square = Call(op::pow_Tensor_Scalar, {f}, {{"exponent", int64_t{2}}});
    ValueId mean =
        Call(op::mean_dim, {square}, {{"dim", std::vector<int64_t>{-1}}, {"keepdim", true}});
    ValueId shifted = Call(op::add_Scalar, {mean}, {{"other", 1e-5}});
    ValueId scale = Call(op::rsqrt, {shifted});
    ValueId normed = Call(op::mul_Tensor, {f, scale});
    return Cast(Call(op::mul_Tensor, {normed, weight}), DType::kBF16);
  }

  ValueId Rope(ValueId x) {
    int64_t heads = o_.heads / o_.tp;
    int64_t size = o_.dim / o_.heads;
    ValueId pairs = View(Cast(x, DType::kF32), {o_.tokens, heads, size / 2, 2});
    ValueId turned = Call(op::mul_Tensor, {Call(op::view_as_complex, {pairs}), rope_});
    ValueId real = View(Call(op::view_as_real, {turned}), {o_.tokens, heads, size});
    return Cast(real, DType::kBF16);
  }

  ValueId Heads(ValueId x) {
    int64_t heads = o_.heads / o_.tp;
    return Transpose(View(x, {1, o_.tokens, heads, o_.dim / o_.heads}), 1, 2);
  }

  LayerState Forward(const Layer& layer, ValueId x) {
    LayerState s;
    int64_t heads = o_.heads / o_.tp;
    int64_t size = o_.dim / o_.heads;
    s.weights = UnshardAll(layer);
    s.in = x;
    s.normed = Gather(Norm(x, s.weights[7]));
    auto project = [&](size_t w) {
      return View(Mm(s.normed, T(s.weights[w])), {o_.tokens, heads, size});
    };
    s.q = Heads(Rope(project(0)));
    s.k = Heads(Rope(project(1)));
    s.v = Heads(project(2));
    s.attention =
        Call(op::_scaled_dot_product_flash_attention, {s.q, s.k, s.v}, {{"is_causal", true}}, 7);
    s.lse = Next(s.attention, 1);
    ValueId joined = View(Transpose(s.attention, 1, 2), {o_.tokens, heads * size});
    s.hidden = Call(op::add_Tensor, {x, Scatter(Mm(joined, T(s.weights[3])))});
    s.normed2 = Gather(Norm(s.hidden, s.weights[8]));
    s.gate = Mm(s.normed2, T(s.weights[4]));
    s.up = Mm(s.normed2, T(s.weights[6]));
    s.product = Call(op::mul_Tensor, {Call(op::silu, {s.gate}), s.up});
    s.out = Call(op::add_Tensor, {s.hidden, Scatter(Mm(s.product, T(s.weights[5])))});
    return s;
  }

  ValueId Loss(ValueId x) {
    ValueId f = Cast(x, DType::kF32);
    ValueId loss = Call(op::sum, {f});
    Output output;
    output.value = loss;
    output.role = OutputRole::kLoss;
    graph().AddOutput(output);
    phase_ = Phase::kBackward;
    ValueId one = Call(op::ones_like, {loss});
    return Cast(Call(op::expand, {one}, {{"size", Dims{o_.tokens / o_.tp, o_.dim}}}), DType::kBF16);
  }

  ValueId NormBackward(ValueId grad, ValueId x, ValueId weight, ValueId& weight_grad) {
    ValueId f = Cast(x, DType::kF32);
    ValueId g = Cast(grad, DType::kF32);
    ValueId scaled = Call(op::mul_Tensor, {g, weight});
    ValueId product = Call(op::mul_Tensor, {g, f});
    weight_grad = Cast(Call(op::sum_dim_IntList, {product}, {{"dim", std::vector<int64_t>{0}}}),
                       DType::kBF16);
    ValueId mean = Call(op::mean_dim, {Call(op::mul_Tensor, {scaled, f})},
                        {{"dim", std::vector<int64_t>{-1}}, {"keepdim", true}});
    ValueId shift = Call(op::mul_Tensor, {f, mean});
    return Cast(Call(op::sub_Tensor, {scaled, shift}), DType::kBF16);
  }

  ValueId RopeBackward(ValueId grad) {
    int64_t heads = o_.heads / o_.tp;
    int64_t size = o_.dim / o_.heads;
    ValueId flat = View(Transpose(grad, 1, 2), {o_.tokens, heads, size});
    ValueId pairs = View(Cast(flat, DType::kF32), {o_.tokens, heads, size / 2, 2});
    ValueId turned = Call(op::mul_Tensor,
                          {Call(op::view_as_complex, {pairs}), Call(op::_conj_physical, {rope_})});
    ValueId real = View(Call(op::view_as_real, {turned}), {o_.tokens, heads * size});
    return Cast(real, DType::kBF16);
  }

  ValueId Backward(const Layer& layer, const LayerState& s, ValueId grad) {
    std::vector<ValueId> w = o_.lowered ? s.weights : UnshardAll(layer);
    std::vector<ValueId> grads(9);
    int64_t heads = o_.heads / o_.tp;
    int64_t size = o_.dim / o_.heads;
    // d(x @ W^T): the transposed product for W, and the product with W for x.
    auto linear = [&](ValueId dy, ValueId x, size_t weight) {
      grads[weight] = Mm(T(dy), x);
      return Mm(dy, w[weight]);
    };
    ValueId full = Gather(grad);
    ValueId product = linear(full, s.product, 5);
    ValueId up = linear(Call(op::mul_Tensor, {product, Call(op::silu, {s.gate})}), s.normed2, 6);
    ValueId gate = linear(Call(op::silu_backward, {Call(op::mul_Tensor, {product, s.up}), s.gate}),
                          s.normed2, 4);
    ValueId normed2 = Scatter(Call(op::add_Tensor, {up, gate}));
    ValueId hidden = Call(op::add_Tensor, {grad, NormBackward(normed2, s.hidden, w[8], grads[8])});
    ValueId full2 = Gather(hidden);
    ValueId joined = View(Transpose(s.attention, 1, 2), {o_.tokens, heads * size});
    ValueId d_attention = Heads(linear(full2, joined, 3));
    ValueId state = Next(s.attention, 4);
    Attrs attrs;
    ValueId dq = Call(
        op::_scaled_dot_product_flash_attention_backward,
        {d_attention, s.q, s.k, s.v, s.attention, s.lse, ValueId(), ValueId(), state,
         Next(state, 1)},
        {{"max_q", o_.tokens}, {"max_k", o_.tokens}, {"dropout_p", 0.0}, {"is_causal", true}}, 3);
    ValueId q = linear(RopeBackward(dq), s.normed, 0);
    ValueId k = linear(RopeBackward(Next(dq, 1)), s.normed, 1);
    ValueId v = linear(View(Transpose(Next(dq, 2), 1, 2), {o_.tokens, heads * size}), s.normed, 2);
    ValueId sum = Call(op::add_Tensor, {Call(op::add_Tensor, {q, k}), v});
    ValueId normed = Scatter(sum);
    ValueId out = Call(op::add_Tensor, {hidden, NormBackward(normed, s.in, w[7], grads[7])});
    for (ValueId& g : grads) g = Cast(g, DType::kF32);
    std::vector<ValueId> sums = ForUnit(op::comm_reduce_scatter, grads, Why::kGrad, 2);
    for (size_t i = 0; i < grads.size(); ++i) {
      Output output;
      output.value = sums[i];
      output.role = OutputRole::kGrad;
      output.index = layer.first_index + static_cast<int64_t>(i);
      graph().AddOutput(output);
    }
    return out;
  }

  LlamaGraphOptions o_;
  Module module_;
  std::vector<Layer> layers_;
  ValueId table_, tokens_, rope_;
  int64_t params_ = 0;
  int64_t next_name_ = 0;
  ScopeId scope_;
  Phase phase_ = Phase::kForward;
  uint8_t stream_ = 0;
};

}  // namespace

Module MakeLlamaGraph(const LlamaGraphOptions& options) { return Builder(options).Build(); }

}  // namespace heddle
