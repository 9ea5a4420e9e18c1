// RowExchange: what comm.dispatch and comm.combine do with rows before they are sent and when they have arrived.
//
// On the wire rows stand by member, for each member by expert, and nothing is padded. With a rank's experts they stand by expert,
// then by the member that they come from.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/graph.h"

namespace heddle::run {

// Elements that go to each member, and that come from it. Empty where all are equal.
struct Shares {
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
};

class RowExchange {
 public:
  RowExchange(const Graph& graph, NodeId node, int64_t members);

  // Operands are rows, the counts of what this rank sends, and of what it receives. Throws where counts and rows do not agree.
  Shares SharesOf(std::span<const at::Tensor> operands) const;
  at::Tensor Pack(std::span<const at::Tensor> operands) const;
  // Of this member of the group.
  at::Tensor Unpack(const at::Tensor& received, std::span<const at::Tensor> operands,
                    int64_t member) const;

 private:
  // How many rows go from each member to each expert of this rank: [members, experts].
  std::vector<int64_t> Blocks(std::span<const at::Tensor> operands) const;
  // Copies blocks of rows from one order to the other.
  void Reorder(const at::Tensor& by_member, const at::Tensor& by_expert,
               std::span<const int64_t> blocks) const;
  void CheckRoom(std::span<const int64_t> blocks, int64_t member) const;

  int64_t members_;
  bool dispatches_;
  // The most rows that a dispatch may bring, and whether they stand in a buffer for as many; the rows that a combine brings.
  int64_t most_;
  bool exact_;
};

}  // namespace heddle::run
