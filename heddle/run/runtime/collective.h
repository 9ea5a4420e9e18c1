// Collective: packs and unpacks the tensors of a communication node, independently of the
// transport.
//
// A launch sends all its tensors in one payload per element type. Payloads have the same number of
// elements on every rank, so shorter parts are padded with zeros. The layout is FSDP2's: tensors in
// operand order, and one row per rank if tensors are split among ranks. A large tensor that is
// gathered along its first dimension has its own payload, because the received payload is the
// result and needs no copy. A transport moves payloads and does not interpret them.
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
  // Whether the node is an all-to-all whose part sizes are data.
  bool moves_rows() const { return rows_.has_value(); }
  // Number of ranks in a group.
  int64_t group_size() const { return group_size_; }
  ReduceOp reduce() const { return reduce_; }
  // Whether all members of a group get the same result.
  bool equal_results() const {
    return kind_ == CollectiveKind::kAllGather || kind_ == CollectiveKind::kAllReduce;
  }
  // For a shift: the member that receives the payload of `member`.
  int64_t next(int64_t member) const { return (member + 1) % group_size_; }
  int64_t previous(int64_t member) const { return (member + group_size_ - 1) % group_size_; }

  // Returns the payloads that `rank` sends: one flat tensor per element type. If tensors are split
  // among ranks, it has one row per member. Applies the node's scale.
  Tensors Pack(std::span<const at::Tensor> operands, int64_t rank) const;
  // For row exchanges: returns how many elements of the payload go to and come from each member.
  Shares SharesOf(std::span<const at::Tensor> operands) const;
  // Returns the results of `rank` from the received payloads. Results are fresh tensors, or with
  // `take` may be the received ones. A gather and an all-to-all receive one row per member, a
  // reduce-scatter its own row, an all-reduce everything, and a shift the payload of the previous
  // member. Symbolic sizes are those of the operands.
  Tensors Unpack(std::span<const at::Tensor> received, std::span<const at::Tensor> operands,
                 int64_t rank, bool take) const;
  // Throws if symbolic sizes differ between members.
  void CheckSizes(std::span<const Tensors> operands_by_member) const;

 private:
  struct Item {
    // Index of the payload, and the item's elements in it with padding: in total, or per row.
    size_t payload = 0;
    int64_t elements = 0;
    int64_t offset = 0;
    // As in the graph. Symbols resolve to the sizes of a rank.
    Dims operand_dims;
    Dims result_dims;
    // The dimension that is split, and the one that is concatenated.
    size_t cut_dim = 0;
    size_t join_dim = 0;
    // All parts have the same size, so one copy packs or unpacks the tensor.
    bool even = false;
    // The item has its own payload and is sent without a copy.
    bool alone = false;
  };

  // `given` contains the sizes of named symbols.
  at::DimVector SizesAt(const Dims& dims, int64_t rank, at::IntArrayRef given) const;
  // The sizes of the part that one rank gets of another's operand, with and without padding.
  at::DimVector PieceBound(const Item& item) const;
  at::DimVector PieceSizes(const Item& item, int64_t from, int64_t to, at::IntArrayRef given) const;
  // Splits dimension `dim` of `tensor` into one part per member and moves the parts to the front.
  at::Tensor PartsFirst(const at::Tensor& tensor, size_t dim) const;
  // Returns the rows of a payload that contain the item.
  at::Tensor RowsOf(const Item& item, const at::Tensor& payload) const;
  void AddItem(const Graph& graph, NodeId node, size_t i);
  void PackItem(const Item& item, const at::Tensor& operand, int64_t rank,
                at::Tensor& payload) const;
  at::Tensor UnpackItem(const Item& item, const at::Tensor& received, const at::Tensor& operand,
                        int64_t rank) const;
  // Returns the index of the item's payload; adds a payload if the item shares none.
  size_t PayloadFor(const Item& item, at::ScalarType type);
  // Returns the member at `index` of the group that contains `rank`.
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
  // By payload: its element type and number of elements (per row, if it has rows).
  std::vector<at::ScalarType> types_;
  std::vector<int64_t> sizes_;
  // By payload: whether it belongs to an item that is sent alone.
  std::vector<bool> alone_;
};

}  // namespace heddle::run
