#include "test/parallel/op_call.h"

#include <algorithm>

#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

struct MoreCall {
  OpId op;
  std::string_view call;
};

// Further calls of ops, which change factors or have local sizes that are easily confused.
constexpr MoreCall kMoreCalls[] = {
    {op::add_Tensor, "(f32[4,1], f32[6])"},
    {op::add_Tensor, "(f32[4,6], f32[])"},
    {op::add_Tensor, "(f32[4,1], f32[4,1])"},
    {op::addmm, "(f32[8,1], f32[8,16], f32[16,4])"},
    {op::addmm, "(f32[1,4], f32[8,6], f32[6,4], beta=0.5)"},
    {op::baddbmm, "(f32[8,1], f32[3,8,6], f32[3,6,4])"},
    {op::amax, "(f32[4,6], dim=[0,1], keepdim=true)"},
    {op::amax, "(f32[4,6,2], dim=[0,2])"},
    {op::argmax, "(f32[4,6])"},
    {op::argmax, "(f32[4,6], dim=0, keepdim=true)"},
    {op::bincount, "(i64[24] below 5, weights=f32[24], minlength=5)"},
    {op::cat, "([f32[4,2], f32[0], f32[4,3]], dim=1)"},
    {op::cat, "([f32[4,6], f32[4,6]], dim=-2)"},
    {op::clamp_Tensor, "(f32[4,6], max=f32[4,1])"},
    {op::constant_pad_nd, "(f32[4,6], pad=[1,-1])"},
    {op::constant_pad_nd, "(f32[4,6], pad=[0,0,1,1], value=2)"},
    {op::constant_pad_nd, "(f32[4,6], pad=[])"},
    {op::convert_element_type, "(f32[4,6], dtype=i64)"},
    {op::convert_element_type, "(i64[4,6], dtype=bool)"},
    {op::copy, "(i64[4,6], f32[6])"},
    {op::copy, "(f32[4,6], i64[4,6])"},
    {op::cumsum, "(f32[4,6], dim=1)"},
    {op::cumsum, "(f32[4,6], dim=0, dtype=i64)"},
    {op::div_Tensor_mode, "(f32[4,6], f32[4,6], rounding_mode=none)"},
    {op::einsum, "([f32[4,6], f32[6,5], f32[5,3]], equation=\"ij,jk,kl->il\")"},
    {op::einsum, "([f32[2,4,6]], equation=\"bij->b\")"},
    {op::einsum, "([f32[4,6], f32[3]], equation=\"ab,c->a\")"},
    {op::embedding, "(f32[10,6], i64[2,3] below 10, padding_idx=2)"},
    {op::embedding, "(f32[10,6], i64[] below 10)"},
    {op::embedding_dense_backward,
     "(f32[2,3,6], i64[2,3] below 10, num_weights=10, padding_idx=2, scale_grad_by_freq=false)"},
    {op::embedding_dense_backward,
     "(f32[2,3,6], i64[2,3] below 10, num_weights=10, padding_idx=-1, scale_grad_by_freq=true)"},
    {op::expand, "(f32[4,6], size=[-1,6])"},
    {op::expand, "(f32[1,6], size=[4,-1])"},
    {op::fill_Tensor, "(i64[4,6], f32[])"},
    {op::flip, "(f32[4,6,2], dims=[0,2])"},
    {op::_fused_adamw,
     "([f32[4,6], f32[3]], [f32[4,6], f32[3]], [f32[4,6], f32[3]], [f32[4,6], f32[3]], [f32[4,6], "
     "f32[3]], [f32[], f32[]], lr=0.001, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, "
     "amsgrad=true, maximize=true)"},
    {op::_fused_rms_norm, "(f32[4,6], normalized_shape=[6], eps=1e-5)"},
    {op::_fused_rms_norm, "(f32[4,3,6], normalized_shape=[3,6], weight=f32[3,6], eps=1e-5)"},
    {op::_fused_rms_norm_backward,
     "(f32[4,6], f32[4,6], f32[4,1], normalized_shape=[6], output_mask=[true,false])"},
    {op::gather, "(f32[4,6], i64[2,3] below 6, dim=1)"},
    {op::gather, "(f32[4,6], i64[3,6] below 4, dim=0)"},
    {op::_grouped_mm, "(bf16[3,8,16], bf16[3,16,4])"},
    {op::_grouped_mm, "(bf16[2,8,16], bf16[16,12], offs=i32[2] rising 12)"},
    {op::_grouped_mm, "(bf16[8,12], bf16[12,16], offs=i32[2] rising 12)"},
    {op::histc, "(f32[4,6], bins=5)"},
    {op::index_Tensor, "(f32[4,6,8], [i64[3] below 4, none, i64[3] below 8])"},
    {op::index_Tensor, "(f32[4,6], [none, i64[] below 6])"},
    {op::index_put, "(f32[4,6], [none, i64[3] below 6], f32[3])"},
    {op::index_put, "(f32[4,6,2], [none, i64[3] below 6], f32[4,1,2])"},
    {op::index_put,
     "(f32[4,6,8], [i64[3] below 4, none, i64[3] below 8], f32[3,6], accumulate=true)"},
    {op::index_select, "(f32[4,6,2], i64[3] below 4, dim=0)"},
    {op::masked_fill_Tensor, "(i64[4,6], bool[4,6], i64[])"},
    {op::masked_fill_Tensor, "(f32[4,6], bool[4,1], f32[])"},
    {op::max_dim, "(f32[4,6,2], dim=1, keepdim=true)"},
    {op::mean_dim, "(f32[4,6,2], dim=[0,2])"},
    {op::mse_loss, "(f32[4,6], f32[6], reduction=2)"},
    {op::mse_loss, "(f32[4,6], f32[4,1], reduction=0)"},
    {op::mse_loss, "(f32[6], f32[4,6], reduction=0)"},
    {op::mse_loss, "(f32[1,6], f32[4,1], reduction=2)"},
    {op::mse_loss, "(f32[4,6], f32[4,6], reduction=1)"},
    {op::mse_loss, "(f32[4,6], f32[4,6], reduction=0)"},
    {op::mse_loss_backward, "(f32[4,6], f32[4,6], f32[6], reduction=0)"},
    {op::mse_loss_backward, "(f32[], f32[4,6], f32[4,6], reduction=1)"},
    {op::mul_Tensor, "(f32[4,6], f32[4,1])"},
    {op::mul_Tensor, "(f32[4,6], f32[])"},
    {op::native_layer_norm, "(f32[4,6], normalized_shape=[6], eps=1e-5)"},
    {op::native_layer_norm_backward,
     "(f32[4,6], f32[4,6], f32[4,1], f32[4,1], normalized_shape=[6], weight=f32[6], "
     "output_mask=[true,true,false])"},
    {op::nll_loss_forward, "(f32[6,10], i64[6] below 10, reduction=0, ignore_index=-100)"},
    {op::nll_loss_forward, "(f32[6,10], i64[6] below 10, reduction=1, ignore_index=-100)"},
    {op::nll_loss_forward, "(f32[6,10], i64[6] below 10, reduction=2, ignore_index=3)"},
    {op::nll_loss_forward,
     "(f32[6,10], i64[6] below 10, weight=f32[10], reduction=2, ignore_index=-100)"},
    {op::nll_loss_backward,
     "(f32[6], f32[6,10], i64[6] below 10, f32[], reduction=0, ignore_index=-100)"},
    {op::nll_loss_backward,
     "(f32[], f32[6,10], i64[6] below 10, f32[], reduction=1, ignore_index=-100)"},
    {op::nll_loss_backward,
     "(f32[], f32[6,10], i64[6] below 10, f32[], reduction=2, ignore_index=3)"},
    {op::nll_loss_backward,
     "(f32[], f32[6,10], i64[6] below 10, f32[], weight=f32[10], reduction=2, ignore_index=-100)"},
    {op::repeat, "(f32[4,6], repeats=[1,2])"},
    {op::repeat, "(f32[4,1], repeats=[1,3])"},
    {op::reshape, "(f32[6,4], shape=[4,6])"},
    {op::reshape, "(f32[4,1,6], shape=[4,6])"},
    {op::reshape, "(f32[12,5], shape=[2,30])"},
    {op::reshape, "(f32[6], shape=[2,1,3])"},
    {op::reshape, "(f32[4,2,6], shape=[8,6])"},
    {op::roll, "(f32[4,6], shifts=[2])"},
    {op::roll, "(f32[4,6,2], shifts=[1,1], dims=[0,2])"},
    {op::_scaled_dot_product_flash_attention_for_cpu,
     "(f32[2,6,8,16], f32[2,3,8,16], f32[2,3,8,16])"},
    {op::_scaled_dot_product_flash_attention_for_cpu,
     "(f32[2,4,8,16], f32[2,4,8,16], f32[2,4,8,16])"},
    {op::_scaled_dot_product_flash_attention_for_cpu,
     "(f32[2,4,8,16], f32[2,4,6,16], f32[2,4,6,16], attn_mask=f32[8,6])"},
    {op::_scaled_dot_product_flash_attention_for_cpu,
     "(f32[2,4,8,16], f32[2,4,6,16], f32[2,4,6,16], attn_mask=f32[2,1,8,6])"},
    {op::_scaled_dot_product_flash_attention_for_cpu_backward,
     "(f32[2,4,8,16], f32[2,4,8,16], f32[2,4,6,16], f32[2,4,6,16], f32[2,4,8,16], f32[2,4,8], "
     "dropout_p=0.0, is_causal=false)"},
    {op::_scaled_dot_product_flash_attention_for_cpu_backward,
     "(f32[2,4,8,16], f32[2,4,8,16], f32[2,4,6,16], f32[2,4,6,16], f32[2,4,8,16], f32[2,4,8], "
     "attn_mask=f32[2,1,8,6], dropout_p=0.0, is_causal=false)"},
    {op::scatter_add, "(f32[4,6], i64[2,3] below 6, f32[2,3], dim=1)"},
    {op::scatter_src, "(f32[4,6], i64[4,1] below 6, f32[4,2], dim=1)"},
    {op::slice_Tensor, "(f32[4,6], dim=0, start=0, end=4)"},
    {op::slice_Tensor, "(f32[4,6], dim=1)"},
    {op::slice_scatter, "(f32[4,6], f32[4,6], dim=1)"},
    {op::sort, "(f32[4,6], dim=0, descending=true)"},
    {op::split_Tensor, "(f32[4,6], split_size=6, dim=1)"},
    {op::split_Tensor, "(f32[4,6], split_size=9, dim=1)"},
    {op::split_Tensor, "(f32[4,6], split_size=2)"},
    {op::split_with_sizes, "(f32[4,6], split_sizes=[6], dim=1)"},
    {op::squeeze_dim, "(f32[4,6], dim=0)"},
    {op::squeeze_dims, "(f32[4,1,6], dim=[0,1])"},
    {op::stack, "([f32[4,6], f32[4,6]], dim=-1)"},
    {op::sum, "(f32[4,6])"},
    {op::sum, "(f32[4,6], dtype=i64)"},
    {op::sum, "(bool[4,6])"},
    {op::sum_dim_IntList, "(f32[4,6], dim=[1])"},
    {op::sum_dim_IntList, "(f32[4,6], dim=[])"},
    {op::sum_dim_IntList, "(f32[4,6], dim=[0], dtype=i64)"},
    {op::t, "(f32[6])"},
    {op::_to_copy, "(f32[4,6], dtype=i64)"},
    {op::_to_copy, "(i64[4,6], dtype=bool)"},
    {op::_to_copy, "(i64[4,6], dtype=f32)"},
    {op::tril, "(f32[4,6])"},
    {op::tril, "(f32[4,2,3,3], diagonal=-1)"},
    {op::unbind_int, "(f32[4,1,6], dim=1)"},
    {op::unsqueeze, "(f32[4,6], dim=-1)"},
    {op::_unsafe_view, "(f32[4,6,8], size=[24,8])"},
    {op::view, "(f32[4,6,8], size=[4,48])"},
    {op::view, "(f32[4,6], size=[4,1,6])"},
    {op::view, "(f32[2,3,4], size=[24])"},
    {op::view_dtype, "(f32[4,6], dtype=bf16)"},
    {op::where_self, "(bool[6], f32[4,1], f32[6])"},
};

DType Wide(DType dtype) {
  if (IsComplex(dtype)) return DType::kC128;
  return IsFloat(dtype) ? DType::kF64 : dtype;
}

// Infers results and factors. Returns false if the op does not accept the call.
bool Infer(OpCall& call) {
  Mesh mesh;
  SymbolTable symbols;
  OpArgs args(call.def(), call.attrs, mesh, symbols, call.operands);
  Result<Types> results = InferTypes(args);
  if (!results.ok()) return false;
  call.results = *std::move(results);
  Result<Factors> factors = InferFactors(args, call.results);
  if (!factors.ok()) return false;
  call.factors = *std::move(factors);
  return true;
}

Dims SizesOf(const TensorFactors& dims, const Type& type, const std::vector<int64_t>& sizes) {
  Dims out = type.dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d].empty()) continue;
    out[d] = 1;
    for (FactorId f : dims[d]) out[d] *= sizes[f];
  }
  return out;
}

// Returns the call with factors of these sizes; nullopt if the op does not accept it or gives other
// results.
std::optional<OpCall> WithSizes(const OpCall& call, const std::vector<int64_t>& sizes) {
  OpCall out = call;
  const Factors& factors = call.factors;
  for (size_t i = 0; i < out.operands.size(); ++i)
    out.operands[i].dims = SizesOf(factors.operands[i], call.operands[i], sizes);
  std::vector<Dims> expected;
  for (size_t r = 0; r < call.results.size(); ++r)
    expected.push_back(SizesOf(factors.results[r], call.results[r], sizes));
  if (!call.def().def->shape_attr.empty()) out.attrs.Set(call.def().def->shape_attr, expected[0]);
  if (out.attrs.Find("num_weights") != nullptr) out.attrs.Set("num_weights", expected[0][0]);
  // Indices into a table must stay below its size.
  for (ExampleInput& input : out.data) {
    for (FactorId f = 0; f < sizes.size(); ++f) {
      bool table = factors.factors[f].masked && input.data == ExampleInput::Data::kBelow;
      if (table && input.limit == factors.factors[f].size) input.limit = sizes[f];
    }
  }
  if (!Infer(out) || out.results.size() != expected.size()) return std::nullopt;
  for (size_t r = 0; r < expected.size(); ++r) {
    if (out.results[r].dims != expected[r]) return std::nullopt;
  }
  return out;
}

}  // namespace

OpCall MakeCall(OpId op, std::string_view text) {
  Result<Example> example = MakeExample(Ops(), op, text);
  HEDDLE_CHECK(example.ok(), fmt::format("{}{}: {}", Ops()[op].name(), text,
                                         example.ok() ? "" : Format(example.diagnostics())));
  const Graph& graph = example->module.graphs[0];
  OpCall call{.op = op,
              .attrs = graph.attrs(NodeId(0)),
              .operands = {},
              .data = {},
              .results = {},
              .factors = {}};
  call.operands = OperandTypes(graph, graph.operands(NodeId(0)));
  call.data.resize(call.operands.size());
  for (size_t i = 0; i < call.operands.size(); ++i) {
    for (size_t in = 0; in < graph.inputs().size(); ++in) {
      if (graph.inputs()[in].value == graph.operands(NodeId(0))[i])
        call.data[i] = example->inputs[in];
    }
  }
  HEDDLE_CHECK(Infer(call), "an example has no factors");
  return call;
}

std::vector<OpCall> CallsOf(OpId op) {
  std::vector<OpCall> calls{MakeCall(op, Ops()[op].def->example)};
  for (const MoreCall& more : kMoreCalls) {
    if (more.op == op) calls.push_back(MakeCall(op, more.call));
  }
  return calls;
}

std::optional<OpCall> Widened(const OpCall& call) {
  OpCall out = call;
  for (Type& type : out.operands) type.dtype = Wide(type.dtype);
  for (Attr& attr : out.attrs.list) {
    if (auto* dtype = std::get_if<DType>(&attr.value)) *dtype = Wide(*dtype);
  }
  if (!Infer(out)) return std::nullopt;
  return out;
}

OpCall Resized(const OpCall& call, size_t turn) {
  // Each size is a multiple of some of two, three and four ranks, and not of others; some last
  // parts are empty.
  static constexpr int64_t kSizes[][4] = {{5, 7, 3, 6}, {6, 5, 9, 3}, {2, 1, 8, 4}};
  std::vector<int64_t> sizes;
  for (const Factor& factor : call.factors.factors) sizes.push_back(factor.size);
  OpCall out = call;
  size_t changed = 0;
  for (FactorId f = 0; f < sizes.size(); ++f) {
    const Factor& factor = call.factors.factors[f];
    if (factor.kind == FactorKind::kWhole) continue;
    std::vector<int64_t> tried = sizes;
    tried[f] = kSizes[turn % 3][changed++ % 4];
    std::optional<OpCall> next = WithSizes(call, tried);
    if (!next) continue;
    sizes = tried;
    out = *std::move(next);
  }
  return out;
}

Module ModuleOf(const OpCall& call, View view, const Mesh& mesh,
                const std::vector<Placement>& operands, const std::vector<Placement>& results) {
  Module module{view, mesh, {Graph("g", Ops())}};
  Graph& graph = module.graphs[0];
  auto placed = [&](const std::vector<Placement>& list, size_t i) {
    return i < list.size() ? graph.placements().Intern(list[i]) : PlacementTable::kReplicated;
  };
  std::vector<ValueId> values;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    values.push_back({});
    if (call.operands[i].is_none()) continue;
    values.back() = graph.AddInput({}, graph.types().Intern(call.operands[i]),
                                   fmt::format("a{}", i), placed(operands, i));
  }
  std::vector<ResultSpec> specs;
  for (size_t r = 0; r < call.results.size(); ++r)
    specs.push_back({graph.types().Intern(call.results[r]), "r", placed(results, r)});
  NodeId node = graph.Append({.op = call.op,
                              .operands = values,
                              .attrs = graph.InternAttrs(call.attrs),
                              .results = specs});
  for (size_t r = 0; r < call.results.size(); ++r) {
    // Undefined results cannot be compared.
    if (call.results[r].is_none()) continue;
    Output output;
    output.value = graph.results(node)[r];
    graph.AddOutput(std::move(output));
  }
  return module;
}

std::string Describe(const OpCall& call) {
  std::string out = fmt::format("{} {}:", call.def().name(), Format(call.factors));
  Mesh mesh;
  SymbolTable symbols;
  for (const Type& type : call.operands) out += " " + FormatType(type, mesh, symbols);
  for (const Attr& attr : call.attrs.list) {
    out += fmt::format(" {}=", attr.name);
    AppendAttrValue(out, attr.value, mesh, symbols);
  }
  return out;
}

}  // namespace heddle
