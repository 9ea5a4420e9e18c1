#include "heddle/run/aten/attention_part.h"

#include <algorithm>
#include <limits>
#include <span>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "heddle/run/aten/varlen_attention.h"

namespace heddle::run {
namespace {

constexpr int64_t kPositions = 2;

// Joins tensors along their positions. They are stored with positions before heads.
at::Tensor JoinPositions(const std::vector<at::Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<at::Tensor> stored;
  for (const at::Tensor& part : parts) stored.push_back(part.transpose(1, kPositions));
  return at::cat(stored, 1).transpose(1, kPositions);
}

// The ranges and where they begin in a tensor that has them in this order.
struct Placed {
  Part positions;
  int64_t at;
};
std::vector<Placed> PlacesOf(const std::vector<Part>& ranges) {
  std::vector<Placed> out;
  int64_t at = 0;
  for (const Part& range : ranges) {
    out.push_back({range, at});
    at += range.size;
  }
  return out;
}

// Sorts the positions of a tensor that has them in the order of `ranges`.
at::Tensor Sorted(const at::Tensor& tensor, const std::vector<Part>& ranges) {
  std::vector<Placed> places = PlacesOf(ranges);
  std::ranges::sort(places, {}, [](const Placed& place) { return place.positions.begin; });
  std::vector<at::Tensor> parts;
  for (const Placed& place : places)
    parts.push_back(tensor.narrow(kPositions, place.at, place.positions.size));
  return JoinPositions(parts);
}

// The inverse of Sorted.
at::Tensor Unsorted(const at::Tensor& sorted, const std::vector<Part>& ranges) {
  std::vector<at::Tensor> parts;
  for (const Part& range : ranges)
    parts.push_back(sorted.narrow(kPositions, range.begin, range.size));
  return JoinPositions(parts);
}

// A call of the kernel: some consecutive queries of some rows, and the keys that they see.
struct Piece {
  int64_t row = 0;
  int64_t rows = 0;
  // Where the queries begin in their tensor, and the position of the first of them.
  int64_t at = 0;
  Part queries;
  int64_t first_key = 0;
  // The documents of a call that has several.
  Sequences documents = {};

  int64_t keys() const { return queries.begin + queries.size - first_key; }
  // Earlier keys than the first query.
  int64_t before() const { return queries.begin - first_key; }
  at::Tensor Own(const at::Tensor& tensor) const {
    return tensor.narrow(0, row, rows).narrow(kPositions, at, queries.size);
  }
  at::Tensor Seen(const at::Tensor& sorted) const {
    return sorted.narrow(0, row, rows).narrow(kPositions, first_key, keys());
  }
};

// Pieces of one document each. `places` are those of the row's queries in their documents.
void AddDocuments(const Placed& range, int64_t row, std::span<const int64_t> places,
                  std::vector<Piece>& pieces) {
  for (int64_t i = 0; i < range.positions.size; ++i) {
    int64_t position = range.positions.begin + i;
    int64_t place = places[static_cast<size_t>(range.at + i)];
    int64_t first = position - std::clamp(place, int64_t{0}, position);
    if (i > 0 && pieces.back().first_key == first) {
      ++pieces.back().queries.size;
    } else {
      pieces.push_back({row, 1, range.at + i, {position, 1}, first, {}});
    }
  }
}

// One call for documents that follow each other, in their queries and in their keys.
Piece Joined(std::span<const Piece> pieces, int64_t rows) {
  Piece call = pieces.front();
  call.rows = rows;
  const Part& last = pieces.back().queries;
  call.queries.size = last.begin + last.size - call.queries.begin;
  for (const Piece& piece : pieces) call.documents.Add(piece.queries.size, piece.keys());
  return call;
}

std::vector<Piece> PiecesOf(const QueryPart& part, int64_t rows) {
  std::vector<Piece> pieces;
  if (!part.documents.defined() || rows == 0) {
    for (const Placed& range : PlacesOf(part.queries))
      pieces.push_back({0, rows, range.at, range.positions, 0, {}});
    return pieces;
  }
  at::Tensor documents = part.documents.cpu().contiguous();
  std::span<const int64_t> places(documents.const_data_ptr<int64_t>(),
                                  static_cast<size_t>(documents.numel()));
  auto length = static_cast<size_t>(documents.size(1));
  bool whole_rows = part.queries == part.keys && part.queries.size() == 1;
  std::vector<Piece> calls;
  for (int64_t row = 0; row < rows; ++row) {
    for (const Placed& range : PlacesOf(part.queries)) {
      AddDocuments(range, row, places.subspan(static_cast<size_t>(row) * length, length), pieces);
      if (!part.joins_documents || whole_rows) continue;
      calls.push_back(Joined(pieces, 1));
      pieces.clear();
    }
  }
  if (!part.joins_documents) return pieces;
  if (whole_rows) calls.push_back(Joined(pieces, rows));
  return calls;
}

// The CPU kernel aligns its causal mask with the first key, so a part of the queries needs an
// explicit mask. The CUDA kernel aligns its mask with the last key.
std::optional<at::Tensor> MaskOf(const at::Tensor& query, const at::Tensor& keys,
                                 const Piece& piece) {
  bool all = query.size(kPositions) == keys.size(kPositions);
  if (all && piece.before() == 0) return std::nullopt;
  return at::full({piece.queries.size, piece.keys()}, -std::numeric_limits<double>::infinity(),
                  query.options())
      .triu_(piece.before() + 1);
}

// Results by queries, stored with positions before heads.
class ByQueries {
 public:
  ByQueries(const at::Tensor& like, size_t pieces) : like_(like), pieces_(pieces) {}

  void Add(const Piece& piece, const at::Tensor& result) {
    if (pieces_ == 1) {
      all_ = result;
      return;
    }
    if (!all_.defined()) {
      all_ =
          at::empty({like_.size(0), like_.size(2), like_.size(1), result.size(3)}, result.options())
              .transpose(1, kPositions);
    }
    piece.Own(all_).copy_(result);
  }
  at::Tensor Take() const { return all_; }

 private:
  const at::Tensor& like_;
  size_t pieces_;
  at::Tensor all_;
};

// Sums gradients of keys, or of values. The sum has all positions and is stored like other results
// of attention.
class SumOfPieces {
 public:
  SumOfPieces(const at::Tensor& like, size_t pieces) : like_(like), pieces_(pieces) {}

  void Add(const Piece& piece, const at::Tensor& grad) {
    if (pieces_ == 1 && grad.size(kPositions) == like_.size(kPositions)) {
      sum_ = grad;
      return;
    }
    if (!sum_.defined()) {
      // Several gradients are added before they are rounded.
      bool widen = pieces_ > 1 && like_.scalar_type() != at::kDouble;
      sum_ = at::zeros({like_.size(0), like_.size(2), like_.size(1), like_.size(3)},
                       widen ? like_.options().dtype(at::kFloat) : like_.options())
                 .transpose(1, kPositions);
    }
    piece.Seen(sum_).add_(grad);
  }
  at::Tensor Take() const { return sum_.to(like_.scalar_type()); }

 private:
  const at::Tensor& like_;
  size_t pieces_;
  at::Tensor sum_;
};

// The output and its logsumexp.
std::array<at::Tensor, 2> AttendPiece(const Piece& piece, const at::Tensor& query,
                                      const at::Tensor& keys, const at::Tensor& values,
                                      std::optional<double> scale) {
  at::Tensor own = piece.Own(query);
  if (!piece.documents.empty())
    return AttendSequences(piece.documents, own, piece.Seen(keys), piece.Seen(values), scale);
  if (query.is_cpu()) {
    std::optional<at::Tensor> mask = MaskOf(query, keys, piece);
    auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        own, piece.Seen(keys), piece.Seen(values), 0.0, /*is_causal=*/!mask, mask, scale);
    return {out, logsumexp};
  }
  auto results =
      at::_scaled_dot_product_flash_attention(own, piece.Seen(keys), piece.Seen(values), 0.0,
                                              /*is_causal=*/true,
                                              /*return_debug_mask=*/false, scale);
  return {std::get<0>(results), std::get<1>(results)};
}

// The gradients of the piece's queries, and of the keys and values that they see.
std::array<at::Tensor, 3> AttendPieceBackward(const Piece& piece, const AttendedPart& tensors,
                                              std::optional<double> scale) {
  at::Tensor grad_out = piece.Own(tensors.grad_out);
  at::Tensor query = piece.Own(tensors.query);
  at::Tensor keys = piece.Seen(tensors.key);
  at::Tensor values = piece.Seen(tensors.value);
  at::Tensor out = piece.Own(tensors.out);
  at::Tensor logsumexp = piece.Own(tensors.logsumexp);
  std::tuple<at::Tensor, at::Tensor, at::Tensor> grads;
  if (!piece.documents.empty())
    return AttendSequencesBackward(piece.documents, {grad_out, query, keys, values, out, logsumexp},
                                   scale);
  if (query.is_cpu()) {
    std::optional<at::Tensor> mask = MaskOf(tensors.query, tensors.key, piece);
    grads = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, keys, values, out, logsumexp, 0.0, /*is_causal=*/!mask, mask, scale);
  } else {
    // The state of dropout, which is not used.
    at::Tensor seed = at::zeros({2}, query.options().dtype(at::kUInt64));
    at::Tensor offset = at::zeros({}, seed.options());
    grads = at::_scaled_dot_product_flash_attention_backward(
        grad_out, query, keys, values, out, logsumexp.contiguous(), {}, {}, piece.queries.size,
        piece.keys(), 0.0, /*is_causal=*/true, seed, offset, scale);
  }
  return {std::get<0>(grads), std::get<1>(grads), std::get<2>(grads)};
}

}  // namespace

std::array<at::Tensor, 2> AttendPart(const QueryPart& part, const at::Tensor& query,
                                     const at::Tensor& key, const at::Tensor& value,
                                     std::optional<double> scale) {
  at::Tensor keys = Sorted(key, part.keys);
  at::Tensor values = Sorted(value, part.keys);
  std::vector<Piece> pieces = PiecesOf(part, query.size(0));
  ByQueries outs(query, pieces.size());
  at::Tensor logsumexps;
  for (const Piece& piece : pieces) {
    auto [out, logsumexp] = AttendPiece(piece, query, keys, values, scale);
    outs.Add(piece, out);
    if (pieces.size() == 1) {
      logsumexps = logsumexp;
      continue;
    }
    if (!logsumexps.defined())
      logsumexps = at::empty({query.size(0), query.size(1), query.size(2)}, logsumexp.options());
    piece.Own(logsumexps).copy_(logsumexp);
  }
  return {outs.Take(), logsumexps};
}

std::array<at::Tensor, 3> AttendPartBackward(const QueryPart& part, const AttendedPart& tensors,
                                             std::optional<double> scale) {
  at::Tensor keys = Sorted(tensors.key, part.keys);
  at::Tensor values = Sorted(tensors.value, part.keys);
  AttendedPart sorted{tensors.grad_out, tensors.query, keys,
                      values,           tensors.out,   tensors.logsumexp};
  std::vector<Piece> pieces = PiecesOf(part, tensors.query.size(0));
  ByQueries grad_queries(tensors.query, pieces.size());
  SumOfPieces grad_keys(tensors.key, pieces.size());
  SumOfPieces grad_values(tensors.value, pieces.size());
  for (const Piece& piece : pieces) {
    auto [query, key, value] = AttendPieceBackward(piece, sorted, scale);
    grad_queries.Add(piece, query);
    grad_keys.Add(piece, key);
    grad_values.Add(piece, value);
  }
  return {grad_queries.Take(), Unsorted(grad_keys.Take(), part.keys),
          Unsorted(grad_values.Take(), part.keys)};
}

namespace {

QueryPart AllOf(const at::Tensor& query, const at::Tensor& positions) {
  std::vector<Part> all = {{0, query.size(kPositions)}};
  return {all, all, positions, /*joins_documents=*/!query.is_cpu()};
}

using Forward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                   const at::Tensor&, const at::Tensor&,
                                                   std::optional<double>);
using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, std::optional<double>);

std::tuple<at::Tensor, at::Tensor> RunForward(const at::Tensor& query, const at::Tensor& key,
                                              const at::Tensor& value, const at::Tensor& positions,
                                              std::optional<double> scale) {
  auto [out, logsumexp] = AttendPart(AllOf(query, positions), query, key, value, scale);
  return {out, logsumexp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> RunBackward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp,
    const at::Tensor& positions, std::optional<double> scale) {
  auto [grad_query, grad_key, grad_value] = AttendPartBackward(
      AllOf(query, positions), {grad_out, query, key, value, out, logsumexp}, scale);
  return {grad_query, grad_key, grad_value};
}

// The types and strides of the results.
at::Tensor Stored(const at::Tensor& like, int64_t size) {
  return at::empty({like.size(0), like.size(2), like.size(1), size}, like.options())
      .transpose(1, kPositions);
}

std::tuple<at::Tensor, at::Tensor> MetaForward(const at::Tensor& query, const at::Tensor&,
                                               const at::Tensor& value, const at::Tensor&,
                                               std::optional<double>) {
  at::ScalarType wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {Stored(query, value.size(3)),
          at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(wide))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> MetaBackward(
    const at::Tensor&, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, std::optional<double>) {
  return {Stored(query, query.size(3)), Stored(key, key.size(3)), Stored(value, value.size(3))};
}

TORCH_LIBRARY_FRAGMENT(heddle, library) {
  library.def(
      "document_attention(Tensor query, Tensor key, Tensor value, Tensor positions, *, float? "
      "scale=None) -> (Tensor, Tensor)");
  library.def(
      "document_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor "
      "out, Tensor logsumexp, Tensor positions, *, float? scale=None) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(heddle, CPU, library) {
  library.impl("document_attention", RunForward);
  library.impl("document_attention_backward", RunBackward);
}
TORCH_LIBRARY_IMPL(heddle, CUDA, library) {
  library.impl("document_attention", RunForward);
  library.impl("document_attention_backward", RunBackward);
}
TORCH_LIBRARY_IMPL(heddle, Meta, library) {
  library.impl("document_attention", MetaForward);
  library.impl("document_attention_backward", MetaBackward);
}

}  // namespace

std::array<at::Tensor, 2> AttendToDocuments(const at::Tensor& query, const at::Tensor& key,
                                            const at::Tensor& value, const at::Tensor& positions,
                                            std::optional<double> scale) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("heddle::document_attention", "")
                             .typed<Forward>();
  auto [out, logsumexp] = op.call(query, key, value, positions, scale);
  return {out, logsumexp};
}

std::array<at::Tensor, 3> AttendToDocumentsBackward(const AttendedPart& tensors,
                                                    const at::Tensor& positions,
                                                    std::optional<double> scale) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("heddle::document_attention_backward", "")
                             .typed<Backward>();
  auto [query, key, value] = op.call(tensors.grad_out, tensors.query, tensors.key, tensors.value,
                                     tensors.out, tensors.logsumexp, positions, scale);
  return {query, key, value};
}

}  // namespace heddle::run
