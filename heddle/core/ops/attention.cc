// Fused attention kernels. Queries are [batch, heads, positions, size]. Keys and values may have
// fewer heads; a group of query heads shares each of them.
#include "heddle/core/ir/positions.h"
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

// Indices of query, key and value among the operands.
struct Layout {
  size_t query = 0;
  // In a backward op, the gradient is operand 0.
  bool backward = false;
  // Indices of the output and its logsumexp in a backward op.
  size_t out = 0;
  // Index of the positions of queries in their documents; 0 if the op has none.
  size_t positions = 0;
};

Layout LayoutOf(const OpArgs& args) {
  const Schema& schema = args.op().schema;
  bool documents = schema.Find("positions") != nullptr;
  bool backward = schema.args[0].name.starts_with("grad_out");
  if (!backward) return {.positions = documents ? size_t{3} : size_t{0}};
  bool bias_first = schema.args[4].name == "attn_bias";
  return {.query = 1,
          .backward = true,
          .out = bias_first ? size_t{5} : size_t{4},
          .positions = documents ? size_t{6} : size_t{0}};
}

// Whether the op masks later positions, and has all queries.
bool IsCausal(const OpArgs& args) {
  const Schema& schema = args.op().schema;
  if (schema.Find("over") != nullptr) return false;
  return schema.Find("is_causal") != nullptr ? args.Bool("is_causal")
                                             : schema.Find("positions") != nullptr;
}

Status CheckQueryKeyValue(const OpArgs& args, size_t q) {
  for (size_t i = q; i < q + 3; ++i) HEDDLE_RETURN_IF_ERROR(CheckRank(args, i, 4));
  const Dims& query = args.dims(q);
  const Dims& key = args.dims(q + 1);
  const Dims& value = args.dims(q + 2);
  HEDDLE_RETURN_IF_ERROR(CheckSame(args, "batch sizes of query and key differ", query[0], key[0]));
  HEDDLE_RETURN_IF_ERROR(CheckSame(args, "batch sizes of key and value differ", key[0], value[0]));
  HEDDLE_RETURN_IF_ERROR(CheckSame(args, "heads of key and value differ", key[1], value[1]));
  HEDDLE_RETURN_IF_ERROR(CheckSame(args, "positions of key and value differ", key[2], value[2]));
  HEDDLE_RETURN_IF_ERROR(CheckSame(args, "sizes of query and key differ", query[3], key[3]));
  bool grouped = !IsSymbol(query[1]) && !IsSymbol(key[1]) && key[1] != 0 && query[1] % key[1] == 0;
  if (query[1] != key[1] && !grouped) {
    return Error(Diag::kShapeMismatch, "{} query heads cannot be divided evenly among {} key heads",
                 DimText(args, query[1]), DimText(args, key[1]));
  }
  return Done{};
}

Type Attended(const OpArgs& args) {
  const Dims& query = args.dims(0);
  return Type::Tensor(args.dtype(0), {query[0], query[1], query[2], args.dims(2)[3]});
}
Type LogSumExp(const OpArgs& args, DType dtype = DType::kF32) {
  const Dims& query = args.dims(0);
  return Type::Tensor(dtype, {query[0], query[1], query[2]});
}

Result<Types> CpuFlashShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, 0));
  return Types{Attended(args),
               LogSumExp(args, args.dtype(0) == DType::kF64 ? DType::kF64 : DType::kF32)};
}

// Sequence bounds are undefined for batches of equal lengths. The last three results are the state
// of dropout.
Result<Types> FlashShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, 0));
  if (args.Bool("return_debug_mask"))
    return Error(Diag::kShapeMismatch, "`return_debug_mask` is not supported");
  return Types{Attended(args),
               LogSumExp(args),
               Type(),
               Type(),
               Type::Tensor(DType::kU64, {2}),
               Type::Tensor(DType::kU64, {}),
               Type::Tensor(args.dtype(0), {0})};
}

Result<Types> EfficientShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, 0));
  Type lse = LogSumExp(args);
  // The kernel pads rows to its tile size.
  if (IsSymbol(lse.dims[2]))
    return Error(Diag::kSymbolicSize,
                 "the number of positions is {}; this kernel pads it, so it must be a constant",
                 DimText(args, lse.dims[2]));
  lse.dims[2] = args.Bool("compute_log_sumexp") ? (lse.dims[2] + 31) / 32 * 32 : 0;
  Type state = Type::Tensor(DType::kI64, {});
  return Types{Attended(args), lse, state, state};
}

Result<Types> CudnnShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, 0));
  Type lse = LogSumExp(args);
  lse.dims.push_back(1);
  Type state = Type::Tensor(DType::kI64, {});
  return Types{Attended(args), lse, Type(), Type(), state, state, Type()};
}

Result<Types> BackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, 1));
  if (args.dims(0) != args.dims(LayoutOf(args).out)) {
    return Error(Diag::kShapeMismatch, "the gradient is {}, the output {}",
                 DimsText(args, args.dims(0)), DimsText(args, args.dims(LayoutOf(args).out)));
  }
  return Types{args[1], args[2], args[3]};
}

Result<Types> EfficientBackwardShape(const OpArgs& args) {
  HEDDLE_TRY(Types results, BackwardShape(args));
  const auto& mask = std::get<std::vector<bool>>(args.attr("grad_input_mask"));
  if (mask.size() != 4)
    return Error(Diag::kShapeMismatch, "`grad_input_mask` has length {}, expected 4", mask.size());
  results.push_back(mask[3] ? args[4] : Type());
  return results;
}

// Fails unless the queries are one of equal parts of the positions, over the axes of `over`.
Status CheckPart(const OpArgs& args, size_t q) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, q));
  HEDDLE_RETURN_IF_ERROR(CheckOver(args));
  Axes over = args.AxesOf("over");
  Dim queries = args.dims(q)[2];
  Dim keys = args.dims(q + 1)[2];
  int64_t ranks = args.mesh().Size(over);
  if (IsSymbol(queries) || IsSymbol(keys) || queries < 1 || keys % ranks != 0 ||
      keys / ranks != queries)
    return Error(Diag::kShapeMismatch, "{} queries are not one of {} equal parts of {} positions",
                 DimText(args, queries), ranks, DimText(args, keys));
  if (IsHeadTail(over, args.mesh()) && keys % (2 * ranks) != 0)
    return Error(Diag::kShapeMismatch,
                 "{} positions in head-tail order are not a multiple of two parts for each of {} "
                 "ranks",
                 keys, ranks);
  return Done{};
}

// Fails unless the positions of queries in their documents, if there are any, match the queries.
Status CheckPositions(const OpArgs& args) {
  Layout layout = LayoutOf(args);
  if (layout.positions == 0 || !args.has(layout.positions)) return Done{};
  const Type& positions = args[layout.positions];
  const Dims& query = args.dims(layout.query);
  if (positions.dtype != DType::kI64)
    return Error(Diag::kDTypeMismatch, "the positions are {}, expected i64", Name(positions.dtype));
  if (positions.dims != Dims{query[0], query[2]})
    return Error(Diag::kShapeMismatch, "the positions are {}, expected {}",
                 DimsText(args, positions.dims), DimsText(args, {query[0], query[2]}));
  return Done{};
}

// Fails unless queries and keys are equal parts of the positions, as in a step of a ring.
Status CheckRingStep(const OpArgs& args, size_t q) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, q));
  HEDDLE_RETURN_IF_ERROR(CheckOver(args));
  Axes over = args.AxesOf("over");
  if (over.size() != 1)
    return Error(Diag::kUnknownAxis, "`over` has {} axes; a ring has one", over.size());
  const MeshAxis& axis = args.mesh()[over[0]];
  int64_t step = args.Int("step");
  if (step < 0 || step >= axis.size)
    return Error(Diag::kShapeMismatch, "`step` is {}, but a ring over `{}` has {} steps", step,
                 axis.name, axis.size);
  Dim queries = args.dims(q)[2];
  HEDDLE_RETURN_IF_ERROR(
      CheckSame(args, "positions of query and key differ", queries, args.dims(q + 1)[2]));
  if (IsSymbol(queries) || queries < 1)
    return Error(Diag::kShapeMismatch, "{} positions cannot be a part of a ring",
                 DimText(args, queries));
  if (IsHeadTail(over, args.mesh()) && queries % 2 != 0)
    return Error(Diag::kShapeMismatch,
                 "{} positions in head-tail order are not a multiple of two parts", queries);
  size_t positions = LayoutOf(args).positions;
  if (positions != 0 && args.has(positions))
    return Error(Diag::kShapeMismatch, "attention within documents cannot run in a ring");
  return Done{};
}

Status CheckPartOrStep(const OpArgs& args, size_t q) {
  return args.IsNone("step") ? CheckPart(args, q) : CheckRingStep(args, q);
}

Result<Types> PartShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckPartOrStep(args, 0));
  HEDDLE_RETURN_IF_ERROR(CheckPositions(args));
  return CpuFlashShape(args);
}

Result<Types> PartBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckPartOrStep(args, 1));
  HEDDLE_RETURN_IF_ERROR(CheckPositions(args));
  return BackwardShape(args);
}

// Two results of attention for the same queries become one. Sums stay in the type of logsumexps
// unless `dtype` rounds them.
Result<Types> MergeShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 0, 4));
  for (size_t i : {size_t{0}, size_t{1}}) {
    if (args.dims(i) != args.dims(i + 2))
      return Error(Diag::kShapeMismatch, "the parts are {} and {}", DimsText(args, args.dims(i)),
                   DimsText(args, args.dims(i + 2)));
  }
  Dims rows = args.dims(0);
  rows.pop_back();
  if (args.dims(1) != rows)
    return Error(Diag::kShapeMismatch, "the logsumexp is {}, expected {}",
                 DimsText(args, args.dims(1)), DimsText(args, rows));
  Type out = args[0];
  out.dtype = args.DTypeOr("dtype", args.dtype(1));
  return Types{out, args[1]};
}

Result<Factors> MergeFactors(const OpArgs& args, const Types&) {
  Factors factors;
  const Dims& out = args.dims(0);
  TensorFactors all{{factors.Add("b", out[0])},
                    {factors.Add("h", out[1])},
                    {factors.Add("s", out[2])},
                    {factors.Add("e", out[3])}};
  TensorFactors rows(all.begin(), all.end() - 1);
  factors.operands = {all, rows, all, rows};
  factors.results = {all, rows};
  return factors;
}

// Bound by memory. Two temporary tensors in the wider type are written and read.
Work MergeWork(const OpArgs& args, const Types& results) {
  Work work = WorkOf(args, results, 0);
  Type wide = args[0];
  wide.dtype = args.dtype(1);
  Bytes temporary = BytesOf(args, wide) * 2;
  work.read += temporary;
  work.written += temporary;
  return work;
}

Status CheckDocuments(const OpArgs& args, size_t q) {
  HEDDLE_RETURN_IF_ERROR(CheckQueryKeyValue(args, q));
  HEDDLE_RETURN_IF_ERROR(
      CheckSame(args, "positions of query and key differ", args.dims(q)[2], args.dims(q + 1)[2]));
  return CheckPositions(args);
}

Result<Types> DocumentShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckDocuments(args, 0));
  return CpuFlashShape(args);
}

Result<Types> DocumentBackwardShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckDocuments(args, 1));
  return BackwardShape(args);
}

// Whether the op has a form for a part of the queries, `shard.attention`: attention within
// documents, or flash attention without dropout and with no other mask than the causal one.
bool TakesPartOfQueries(const OpArgs& args, const Layout& layout) {
  if (layout.positions != 0) return true;
  bool flash = args.op().name().find("_flash_attention") != std::string_view::npos;
  if (!flash || !SameValue(args.attr("dropout_p"), 0.0)) return false;
  size_t first_mask = layout.backward ? layout.out + 2 : 3;
  for (size_t i = first_mask; i < args.size(); ++i) {
    if (args.has(i) && args[i].rank() > 1) return false;
  }
  return args.dims(layout.query)[2] == args.dims(layout.query + 1)[2];
}

// Batches and groups of heads are independent. So are query positions. With a causal mask, a part
// of them must know where it begins.
Result<Factors> AttentionFactors(const OpArgs& args, const Types& results) {
  Layout layout = LayoutOf(args);
  const Dims& query = args.dims(layout.query);
  const Dims& key = args.dims(layout.query + 1);
  bool grouped = query[1] != key[1];
  Factors factors;
  FactorId b = factors.Add("b", query[0]);
  FactorId g = factors.Add("g", key[1]);
  DimFactors heads{g};
  if (grouped) heads.push_back(factors.Add("r", query[1] / key[1], FactorKind::kWhole));
  // Localizing has split the queries of `shard.attention` already.
  bool part = args.op().schema.Find("over") != nullptr;
  bool causal = IsCausal(args);
  bool counted = causal && TakesPartOfQueries(args, layout);
  // In backward, every query position contributes to the gradients of all keys.
  FactorKind queries = part || (causal && !counted) ? FactorKind::kWhole
                       : layout.backward            ? FactorKind::kReduce
                                                    : FactorKind::kKeep;
  FactorId s = factors.Add("s", query[2], queries);
  factors.factors[s].counted = counted;
  // CPU kernels divide by the number of heads and by the length of a block of queries.
  factors.factors[g].nonempty = true;
  factors.factors[s].nonempty = true;
  // cuDNN returns no tensors for an empty batch.
  factors.factors[b].nonempty = args.op().name().find("cudnn") != std::string_view::npos;
  FactorId t = factors.Add("t", key[2], FactorKind::kWhole);
  FactorId d = factors.Add("d", query[3], FactorKind::kWhole);
  FactorId e = factors.Add("e", args.dims(layout.query + 2)[3], FactorKind::kWhole);
  TensorFactors q{{b}, heads, {s}, {d}};
  TensorFactors k{{b}, {g}, {t}, {d}};
  TensorFactors v{{b}, {g}, {t}, {e}};
  TensorFactors out{{b}, heads, {s}, {e}};
  auto lse = [&](const Type& type) {
    TensorFactors dims{{b}, heads, {}};
    if (type.dims[2] == query[2]) dims[2] = {s};
    if (type.rank() == 4) dims.push_back({});
    return dims;
  };
  // State of dropout and sequence bounds: equal on every rank.
  auto rest = [&](const Type& type) { return TensorFactors(type.rank()); };
  // A mask or bias has the dimensions [batch, heads, queries, keys], or the last of them.
  auto mask = [&](const Type& type) {
    TensorFactors dims(type.rank());
    const DimFactors all[4] = {{b}, heads, {s}, {t}};
    const Dim sizes[4] = {query[0], query[1], query[2], key[2]};
    for (size_t i = 0; i < dims.size() && dims.size() <= 4; ++i) {
      size_t at = 4 - dims.size() + i;
      if (type.dims[i] == sizes[at]) dims[i] = all[at];
    }
    return dims;
  };
  for (size_t i = 0; i < args.size(); ++i) {
    const Type& type = args[i];
    if (layout.positions != 0 && i == layout.positions)
      factors.operands.push_back(type.rank() == 2 ? TensorFactors{{b}, {s}} : rest(type));
    else if (layout.backward && i == 0)
      factors.operands.push_back(out);
    else if (i == layout.query)
      factors.operands.push_back(q);
    else if (i == layout.query + 1)
      factors.operands.push_back(k);
    else if (i == layout.query + 2)
      factors.operands.push_back(v);
    else if (layout.backward && i == layout.out)
      factors.operands.push_back(out);
    else if (layout.backward && i == layout.out + 1)
      factors.operands.push_back(lse(type));
    else
      factors.operands.push_back(type.rank() == 2 || type.rank() == 4 ? mask(type) : rest(type));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const Type& type = results[i];
    if (layout.backward) {
      factors.results.push_back(i == 0 ? q : i == 1 ? k : i == 2 ? v : mask(type));
    } else {
      factors.results.push_back(i == 0 ? out : i == 1 ? lse(type) : rest(type));
    }
  }
  return factors;
}

// Two matrix products in forward, five in backward. As is customary, masked positions count.
Work AttentionWork(const OpArgs& args, const Types& results) {
  Layout layout = LayoutOf(args);
  const Dims& query = args.dims(layout.query);
  int64_t pairs =
      BoundedProduct(args, {query[0], query[1], query[2], args.dims(layout.query + 1)[2]});
  int64_t d = args.symbols().Bound(query[3]);
  int64_t e = args.symbols().Bound(args.dims(layout.query + 2)[3]);
  int64_t per_pair = layout.backward ? 2 * (3 * d + 2 * e) : 2 * (d + e);
  int64_t flops = 0;
  if (__builtin_mul_overflow(pairs, per_pair, &flops)) flops = INT64_MAX;
  return WorkOf(args, results, flops);
}

constexpr OpDef Attention(std::string_view schema, ShapeFn shape, std::string_view example,
                          Effect effect = Effect::kPure) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = AttentionFactors},
          .work = AttentionWork,
          .effect = effect,
          .example = example};
}

constexpr OpDef OwnQueries(std::string_view schema, ShapeFn shape, std::string_view example) {
  OpDef def = Attention(schema, shape, example);
  def.view = View::kLocal;
  return def;
}

}  // namespace

HEDDLE_DEFINE_OP(_scaled_dot_product_flash_attention_for_cpu)
Attention(
    "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, "
    "float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> "
    "(Tensor output, Tensor logsumexp)",
    CpuFlashShape, "(f32[2,6,8,16], f32[2,3,8,16], f32[2,3,8,16], is_causal=true)");
HEDDLE_DEFINE_OP(_scaled_dot_product_flash_attention_for_cpu_backward)
Attention(
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, "
    "Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, "
    "Tensor? attn_mask=None, float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor "
    "grad_value)",
    BackwardShape,
    "(f32[2,6,8,16], f32[2,6,8,16], f32[2,3,8,16], f32[2,3,8,16], f32[2,6,8,16], f32[2,6,8], "
    "dropout_p=0.0, is_causal=true)");
HEDDLE_DEFINE_OP(_scaled_dot_product_flash_attention)
Attention(
    "aten::_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, float "
    "dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> "
    "(Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt "
    "max_k, Tensor rng_state, Tensor unused, Tensor debug_attn_mask)",
    FlashShape, "(bf16[2,6,8,16], bf16[2,3,8,16], bf16[2,3,8,16], is_causal=true)");
HEDDLE_DEFINE_OP(_scaled_dot_product_flash_attention_backward)
Attention(
    "aten::_scaled_dot_product_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, "
    "Tensor value, Tensor out, Tensor logsumexp, Tensor? cum_seq_q, Tensor? cum_seq_k, SymInt "
    "max_q, SymInt max_k, float dropout_p, bool is_causal, Tensor philox_seed, Tensor "
    "philox_offset, *, float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor "
    "grad_value)",
    BackwardShape,
    "(bf16[2,6,8,16], bf16[2,6,8,16], bf16[2,3,8,16], bf16[2,3,8,16], bf16[2,6,8,16], f32[2,6,8], "
    "u64[2], u64[], max_q=8, max_k=8, dropout_p=0.0, is_causal=true)");
HEDDLE_DEFINE_OP(_scaled_dot_product_efficient_attention)
Attention(
    "aten::_scaled_dot_product_efficient_attention(Tensor query, Tensor key, Tensor value, Tensor? "
    "attn_bias, bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, *, float? "
    "scale=None) -> (Tensor output, Tensor log_sumexp, Tensor philox_seed, Tensor philox_offset)",
    EfficientShape,
    "(bf16[2,6,8,16], bf16[2,6,8,16], bf16[2,6,8,16], compute_log_sumexp=true, is_causal=true)");
HEDDLE_DEFINE_OP(_scaled_dot_product_efficient_attention_backward)
Attention(
    "aten::_scaled_dot_product_efficient_attention_backward(Tensor grad_out_, Tensor query, Tensor "
    "key, Tensor value, Tensor? attn_bias, Tensor out, Tensor logsumexp, Tensor philox_seed, "
    "Tensor philox_offset, float dropout_p, bool[4] grad_input_mask, bool is_causal=False, *, "
    "float? scale=None) -> (Tensor, Tensor, Tensor, Tensor)",
    EfficientBackwardShape,
    "(bf16[2,6,8,16], bf16[2,6,8,16], bf16[2,6,8,16], bf16[2,6,8,16], bf16[2,6,8,16], f32[2,6,32], "
    "i64[], i64[], dropout_p=0.0, grad_input_mask=[true,true,true,false], is_causal=true)");
HEDDLE_DEFINE_OP(_scaled_dot_product_cudnn_attention)
Attention(
    "aten::_scaled_dot_product_cudnn_attention(Tensor query, Tensor key, Tensor value, Tensor? "
    "attn_bias, bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, bool "
    "return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor "
    "cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor philox_seed, Tensor "
    "philox_offset, Tensor debug_attn_mask)",
    CudnnShape,
    "(bf16[2,6,8,16], bf16[2,3,8,16], bf16[2,3,8,16], compute_log_sumexp=true, is_causal=true)");
HEDDLE_DEFINE_OP(_scaled_dot_product_cudnn_attention_backward)
Attention(
    "aten::_scaled_dot_product_cudnn_attention_backward(Tensor grad_out, Tensor query, Tensor key, "
    "Tensor value, Tensor out, Tensor logsumexp, Tensor philox_seed, Tensor philox_offset, Tensor? "
    "attn_bias, Tensor? cum_seq_q, Tensor? cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, "
    "bool is_causal, *, float? scale=None) -> (Tensor, Tensor, Tensor)",
    BackwardShape,
    "(bf16[2,6,8,16], bf16[2,6,8,16], bf16[2,3,8,16], bf16[2,3,8,16], bf16[2,6,8,16], "
    "f32[2,6,8,1], i64[], i64[], max_q=8, max_k=8, dropout_p=0.0, is_causal=true)");

// Causal attention of positions to those of the same document. `positions` are i64[batch,
// positions]: the place of each position in its document, which begins in the same row.
HEDDLE_DEFINE_OP(heddle_document_attention)
Attention(
    "heddle::document_attention(Tensor query, Tensor key, Tensor value, Tensor positions, *, "
    "float? scale=None) -> (Tensor output, Tensor logsumexp)",
    DocumentShape, "(f32[2,6,8,16], f32[2,3,8,16], f32[2,3,8,16], i64[2,8])");
HEDDLE_DEFINE_OP(heddle_document_attention_backward)
Attention(
    "heddle::document_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
    "Tensor out, Tensor logsumexp, Tensor positions, *, float? scale=None) -> (Tensor grad_query, "
    "Tensor grad_key, Tensor grad_value)",
    DocumentBackwardShape,
    "(f32[2,6,8,16], f32[2,6,8,16], f32[2,3,8,16], f32[2,3,8,16], f32[2,6,8,16], f32[2,6,8], "
    "i64[2,8])");

// Causal attention of this rank's queries, which are one of equal parts of the positions, over the
// keys of all positions, or of their documents. With `step`, the keys are those of the rank that is
// `step` places before this one in a ring. Queries that see none of them get zeros, and a logsumexp
// of minus infinity.
HEDDLE_DEFINE_OP(shard_attention)
OwnQueries(
    "shard::attention(Tensor query, Tensor key, Tensor value, Tensor? positions=None, *, Axes "
    "over, int? step=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
    PartShape, "(f32[2,6,2,16], f32[2,3,8,16], f32[2,3,8,16], over=[dp])");
// The gradients of keys and values are this rank's summands.
HEDDLE_DEFINE_OP(shard_attention_backward)
OwnQueries(
    "shard::attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor "
    "out, Tensor logsumexp, Tensor? positions=None, *, Axes over, int? step=None, float? "
    "scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)",
    PartBackwardShape,
    "(f32[2,6,2,16], f32[2,6,2,16], f32[2,3,8,16], f32[2,3,8,16], f32[2,6,2,16], f32[2,6,2], "
    "over=[dp])");
// Attention over the keys of two parts, from the attention over each: the output and its logsumexp.
HEDDLE_DEFINE_OP(shard_merge_attention){
    .schema =
        "shard::merge_attention(Tensor out, Tensor logsumexp, Tensor part, Tensor "
        "part_logsumexp, *, ScalarType? dtype=None) -> (Tensor output, Tensor logsumexp)",
    .shape = MergeShape,
    .factors = {.compute = MergeFactors},
    .work = MergeWork,
    .view = View::kLocal,
    .example = "(f32[2,6,8,16], f32[2,6,8], bf16[2,6,8,16], f32[2,6,8])"};

}  // namespace heddle
