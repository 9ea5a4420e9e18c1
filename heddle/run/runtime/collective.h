// Collective: what a node that moves tensors between ranks means, whoever moves them.
//
// A launch carries all its tensors in one payload for each element type: on every rank the same number of elements, parts that are
// shorter than the longest padded with zeros. The layout is FSDP2's: tensors in operand order, and for what is cut among ranks, one
// row for each of them. A large tensor that is gathered along its first dimension is a payload of its own, because what arrives is the
// result as it is: nothing is copied. A transport moves payloads and knows nothing of tensors.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/graph.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/run/runtime/row_exchange.h"
#include "heddle/run/runtime/slots.h"

namespace heddle::run {

class Collective {
 public:
  Collective(const Mesh& mesh, const Graph& graph, NodeId node);

  CollectiveKind kind() const { return kind_; }
  // Whether it is an all-to-all of parts whose sizes counts give.
  bool moves_rows() const { return rows_.has_value(); }
  // Ranks of a group, in the order of the node's axes.
  int64_t group_size() const { return group_size_; }
  ReduceOp reduce() const { return reduce_; }
  // Whether every member of a group gets the same.
  bool equal_results() const { return !CutsInput(kind_); }

  // What `rank` sends: one flat payload for each element type. Where tensors are cut among ranks it has a row for each member.
  // Scaled, if the node says so.
  Tensors Pack(std::span<const at::Tensor> operands, int64_t rank) const;
  // If rows move, how much of the payload goes to each member, and how much comes.
  Shares SharesOf(std::span<const at::Tensor> operands) const;
  // The results of `rank` from what it received, in fresh tensors, or in those received where it may `take` them. An all-gather
  // and an all-to-all receive a row from each member; a reduce-scatter its own row; an all-reduce all. Sizes that are known at run
  // time only are those of the operands.
  Tensors Unpack(std::span<const at::Tensor> received, std::span<const at::Tensor> operands,
                 int64_t rank, bool take) const;
  // Throws if sizes that are known at run time only differ between members.
  void CheckSizes(std::span<const Tensors> operands_by_member) const;

 private:
  struct Item {
    // Which payload, and how many elements of it, padding included: of all of it, or of one row.
    size_t payload = 0;
    int64_t elements = 0;
    int64_t offset = 0;
    // As in the graph: symbols have the numbers of a rank.
    Dims operand_dims;
    Dims result_dims;
    // The dimension that is cut, and the one that is put together.
    size_t cut_dim = 0;
    size_t join_dim = 0;
    // All parts have one size: a tensor is packed and unpacked by a single copy.
    bool even = false;
    // It has its payload for itself, and travels as it is.
    bool alone = false;
  };

  // `given` has the sizes that are known at run time only.
  at::DimVector SizesAt(const Dims& dims, int64_t rank, at::IntArrayRef given) const;
  // The sizes of what one rank gets of another's operand, and of the same without padding.
  at::DimVector PieceBound(const Item& item) const;
  at::DimVector PieceSizes(const Item& item, int64_t from, int64_t to, at::IntArrayRef given) const;
  // `tensor` with its dimension `dim` in as many parts as there are members, these in front.
  at::Tensor PartsFirst(const at::Tensor& tensor, size_t dim) const;
  // The rows of a payload that hold the item.
  at::Tensor RowsOf(const Item& item, const at::Tensor& payload) const;
  void AddItem(const Graph& graph, NodeId node, size_t i);
  void PackItem(const Item& item, const at::Tensor& operand, int64_t rank,
                at::Tensor& payload) const;
  at::Tensor UnpackItem(const Item& item, const at::Tensor& received, const at::Tensor& operand,
                        int64_t rank) const;
  // The payload of an item, for a new one if there is none yet that it shares.
  size_t PayloadFor(const Item& item, at::ScalarType type);
  // The member of a group at `index`, where `rank` is one.
  int64_t Member(int64_t rank, int64_t index) const;

  Mesh mesh_;
  SymbolTable symbols_;
  CollectiveKind kind_;
  Axes over_;
  int64_t group_size_ = 1;
  ReduceOp reduce_ = ReduceOp::kSum;
  double scale_ = 1.0;
  std::optional<RowExchange> rows_;
  std::vector<Item> items_;
  // By payload: its element type, and its elements, of a row where there are rows.
  std::vector<at::ScalarType> types_;
  std::vector<int64_t> sizes_;
  // Whether it is that of an item which travels alone.
  std::vector<bool> alone_;
};

}  // namespace heddle::run
