// RowExchange: reorders rows for comm.dispatch and comm.combine, before sending and after
// receiving.
//
// On the wire, rows are sorted by member, then by expert, without padding. For a rank's experts,
// rows are sorted by expert, then by the sending member.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/graph.h"

namespace heddle::run {

// Number of elements sent to and received from each member. Empty if all are equal.
struct Shares {
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
};

class RowExchange {
 public:
  RowExchange(const Graph& graph, NodeId node, int64_t members);

  // Operands are the rows, the counts that this rank sends, and the counts that it receives. Throws
  // if counts and rows disagree.
  Shares SharesOf(std::span<const at::Tensor> operands) const;
  at::Tensor Pack(std::span<const at::Tensor> operands) const;
  // `member` is this rank's position in the group.
  at::Tensor Unpack(const at::Tensor& received, std::span<const at::Tensor> operands,
                    int64_t member) const;

 private:
  // Returns the number of rows from each member to each expert of this rank: [members, experts].
  std::vector<int64_t> Blocks(std::span<const at::Tensor> operands) const;
  // Copies blocks of rows from one order to the other.
  void Reorder(const at::Tensor& by_member, const at::Tensor& by_expert,
               std::span<const int64_t> blocks) const;
  void CheckRoom(std::span<const int64_t> blocks, int64_t member) const;

  int64_t members_;
  bool dispatches_;
  // Maximum number of rows that a dispatch can receive, and whether its result is a buffer of that
  // size. For a combine, the number of rows that come back.
  int64_t most_;
  bool exact_;
};

}  // namespace heddle::run
