#include "heddle/run/runtime/collective.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "heddle/run/aten/dtype.h"

namespace heddle::run {
namespace {

// Bytes per rank from which a tensor is sent separately. For smaller tensors, another launch costs
// more than a copy.
constexpr int64_t kAloneBytes = 1 << 18;

int64_t Product(at::IntArrayRef sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

// Returns the leading part of `tensor` that has these sizes.
at::Tensor Corner(at::Tensor tensor, at::IntArrayRef sizes) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) != sizes[static_cast<size_t>(d)])
      tensor = tensor.narrow(d, 0, sizes[static_cast<size_t>(d)]);
  }
  return tensor;
}

}  // namespace

Collective::Collective(const Mesh& mesh, const Graph& graph, NodeId node)
    : mesh_(mesh), symbols_(graph.types().symbols()), kind_(*CollectiveKindOf(graph[node].op)) {
  SymbolTable scratch;
  OpArgs args(graph.op(node), graph.attrs(node), mesh, scratch, {});
  over_ = args.AxesOf("over");
  group_size_ = mesh.Size(over_);
  if (MovesRows(graph[node].op)) {
    rows_.emplace(graph, node, group_size_);
    return;
  }
  const Schema& schema = graph.op(node).schema;
  if (schema.Find("op") != nullptr) reduce_ = std::get<ReduceOp>(args.attr("op"));
  if (schema.Find("scale") != nullptr) scale_ = std::get<double>(args.attr("scale"));
  for (size_t i = 0; i < graph.operands(node).size(); ++i) AddItem(graph, node, i);
}

void Collective::AddItem(const Graph& graph, NodeId node, size_t i) {
  SymbolTable scratch;
  OpArgs args(graph.op(node), graph.attrs(node), mesh_, scratch, {});
  const TypeTable& types = graph.types();
  TypeId operand = graph.type(graph.operands(node)[i]);
  TypeId result = types.elements(graph.type(graph[node].first_result))[i];
  Item item;
  item.operand_dims.assign(types.dims(operand).begin(), types.dims(operand).end());
  item.result_dims.assign(types.dims(result).begin(), types.dims(result).end());
  auto dim = [&](std::string_view name) {
    int64_t given = args.EachInt(name, i);
    return static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(types.rank(operand))
                                         : given);
  };
  if (kind_ == CollectiveKind::kAllToAll) {
    item.cut_dim = dim("split_dim");
    item.join_dim = dim("concat_dim");
  } else if (kind_ != CollectiveKind::kAllReduce && kind_ != CollectiveKind::kShift) {
    item.cut_dim = item.join_dim = dim("dim");
  }
  at::ScalarType type = ToScalarType(types.dtype(operand));
  item.elements = Product(PieceBound(item));
  item.even = kind_ != CollectiveKind::kAllToAll && kind_ != CollectiveKind::kShift &&
              std::ranges::none_of(item.operand_dims, IsSymbol) &&
              std::ranges::none_of(item.result_dims, IsSymbol);
  item.alone = kind_ == CollectiveKind::kAllGather && item.even && item.join_dim == 0 &&
               scale_ == 1.0 &&
               item.elements * static_cast<int64_t>(c10::elementSize(type)) >= kAloneBytes;
  item.payload = PayloadFor(item, type);
  item.offset = sizes_[item.payload];
  sizes_[item.payload] += item.elements;
  items_.push_back(std::move(item));
}

size_t Collective::PayloadFor(const Item& item, at::ScalarType type) {
  for (size_t p = 0; p < types_.size() && !item.alone; ++p) {
    if (types_[p] == type && !alone_[p]) return p;
  }
  types_.push_back(type);
  sizes_.push_back(0);
  alone_.push_back(item.alone);
  return types_.size() - 1;
}

at::DimVector Collective::SizesAt(const Dims& dims, int64_t rank, at::IntArrayRef given) const {
  at::DimVector sizes;
  for (size_t d = 0; d < dims.size(); ++d) {
    const Symbol* symbol = IsSymbol(dims[d]) ? &symbols_[dims[d]] : nullptr;
    sizes.push_back(symbol == nullptr    ? dims[d]
                    : symbol->is_chunk() ? PartAt(symbol->whole, symbol->axes, mesh_, rank).size
                                         : given[d]);
  }
  return sizes;
}

void Collective::CheckSizes(std::span<const Tensors> operands_by_member) const {
  for (size_t i = 0; i < items_.size(); ++i) {
    for (size_t d = 0; d < items_[i].operand_dims.size(); ++d) {
      Dim dim = items_[i].operand_dims[d];
      if (!IsSymbol(dim) || symbols_[dim].is_chunk()) continue;
      for (const Tensors& operands : operands_by_member) {
        TORCH_CHECK(operands[i].sizes()[d] == operands_by_member[0][i].sizes()[d], "sizes ",
                    operands[i].sizes(), " and ", operands_by_member[0][i].sizes(),
                    " of one group differ");
      }
    }
  }
}

at::DimVector Collective::PieceBound(const Item& item) const {
  at::DimVector sizes;
  for (Dim dim : item.operand_dims) sizes.push_back(symbols_.Bound(dim));
  // A dimension that is split has the size of the longest part, which is the bound of the result's.
  if (CutsInput(kind_)) sizes[item.cut_dim] = symbols_.Bound(item.result_dims[item.cut_dim]);
  return sizes;
}

int64_t Collective::Member(int64_t rank, int64_t index) const {
  // Strides along each axis of the group, from the fastest to the slowest.
  int64_t stride = 1;
  std::vector<int64_t> strides(mesh_.axes().size());
  for (size_t a = mesh_.axes().size(); a-- > 0;) {
    strides[a] = stride;
    stride *= mesh_.axes()[a].size;
  }
  for (size_t i = over_.size(); i-- > 0;) {
    int64_t size = mesh_[over_[i]].size;
    rank += (index % size - mesh_.Coordinate(rank, over_[i])) * strides[over_[i]];
    index /= size;
  }
  return rank;
}

at::DimVector Collective::PieceSizes(const Item& item, int64_t from, int64_t to,
                                     at::IntArrayRef given) const {
  at::DimVector sizes = SizesAt(item.operand_dims, from, given);
  if (CutsInput(kind_)) sizes[item.cut_dim] = PartAt(sizes[item.cut_dim], over_, mesh_, to).size;
  return sizes;
}

at::Tensor Collective::PartsFirst(const at::Tensor& tensor, size_t dim) const {
  at::DimVector sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[dim] /= group_size_;
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(dim), group_size_);
  return tensor.reshape(sizes).movedim(static_cast<int64_t>(dim), 0);
}

at::Tensor Collective::RowsOf(const Item& item, const at::Tensor& payload) const {
  return payload.view({group_size_, sizes_[item.payload]}).narrow(1, item.offset, item.elements);
}

Shares Collective::SharesOf(std::span<const at::Tensor> operands) const {
  return rows_ ? rows_->SharesOf(operands) : Shares();
}

Tensors Collective::Pack(std::span<const at::Tensor> operands, int64_t rank) const {
  if (rows_) return {rows_->Pack(operands)};
  bool rows = CutsInput(kind_);
  bool even = std::ranges::all_of(items_, &Item::even);
  Tensors payloads;
  for (size_t p = 0; p < types_.size(); ++p) {
    int64_t size = (rows ? group_size_ : 1) * sizes_[p];
    at::TensorOptions options = operands[0].options().dtype(types_[p]);
    if (alone_[p]) {
      payloads.emplace_back();
      continue;
    }
    payloads.push_back(even ? at::empty({size}, options) : at::zeros({size}, options));
  }
  for (size_t i = 0; i < items_.size(); ++i)
    PackItem(items_[i], operands[i], rank, payloads[items_[i].payload]);
  if (scale_ != 1.0) {
    for (at::Tensor& payload : payloads) {
      TORCH_CHECK(
          at::isFloatingType(payload.scalar_type()) || at::isComplexType(payload.scalar_type()),
          "a scale of ", scale_, " for ", payload.scalar_type(), " elements");
      payload.mul_(scale_);
    }
  }
  return payloads;
}

void Collective::PackItem(const Item& item, const at::Tensor& operand, int64_t rank,
                          at::Tensor& payload) const {
  if (item.alone) {
    payload = operand.resolve_conj().resolve_neg().contiguous().view({-1});
    return;
  }
  at::DimVector bound = PieceBound(item);
  if (!CutsInput(kind_)) {
    at::Tensor place = payload.narrow(0, item.offset, item.elements).view(bound);
    Corner(place, operand.sizes()).copy_(operand);
    return;
  }
  if (item.even) {
    at::Tensor parts = PartsFirst(operand, item.cut_dim);
    RowsOf(item, payload).view(parts.sizes()).copy_(parts);
    return;
  }
  int64_t row = sizes_[item.payload];
  for (int64_t m = 0; m < group_size_; ++m) {
    Part part =
        PartAt(operand.size(static_cast<int64_t>(item.cut_dim)), over_, mesh_, Member(rank, m));
    at::Tensor cut = operand.narrow(static_cast<int64_t>(item.cut_dim), part.begin, part.size);
    at::Tensor place = payload.narrow(0, m * row + item.offset, item.elements).view(bound);
    Corner(place, cut.sizes()).copy_(cut);
  }
}

Tensors Collective::Unpack(std::span<const at::Tensor> received,
                           std::span<const at::Tensor> operands, int64_t rank, bool take) const {
  if (rows_)
    return {rows_->Unpack(received[0], operands, PartAt(group_size_, over_, mesh_, rank).begin)};
  Tensors results;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const at::Tensor& from = received[item.payload];
    if (item.alone) {
      at::Tensor whole = from.view(item.result_dims);
      results.push_back(take ? whole : whole.clone());
    } else {
      results.push_back(UnpackItem(item, from, operands[i], rank));
    }
  }
  return results;
}

at::Tensor Collective::UnpackItem(const Item& item, const at::Tensor& received,
                                  const at::Tensor& operand, int64_t rank) const {
  at::DimVector bound = PieceBound(item);
  auto piece = [&](int64_t row, int64_t from) {
    at::Tensor place =
        received.narrow(0, row * sizes_[item.payload] + item.offset, item.elements).view(bound);
    return Corner(place, PieceSizes(item, from, rank, operand.sizes()));
  };
  if (Reduces(kind_) || kind_ == CollectiveKind::kShift)
    return piece(0, rank).clone(at::MemoryFormat::Contiguous);
  if (item.even) {
    at::Tensor result = at::empty(item.result_dims, received.options());
    at::Tensor parts = PartsFirst(result, item.join_dim);
    parts.copy_(RowsOf(item, received).view(parts.sizes()));
    return result;
  }
  std::vector<at::Tensor> pieces;
  for (int64_t m = 0; m < group_size_; ++m) pieces.push_back(piece(m, Member(rank, m)));
  return at::cat(pieces, static_cast<int64_t>(item.join_dim)).contiguous();
}

}  // namespace heddle::run
