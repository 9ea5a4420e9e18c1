#include "heddle/run/runtime/row_exchange.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/ops/ops.h"

namespace heddle::run {
namespace {

std::vector<int64_t> Numbers(const at::Tensor& counts) {
  at::Tensor here = counts.to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = here.const_data_ptr<int64_t>();
  return {data, data + here.numel()};
}

int64_t Sum(std::span<const int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// Sums consecutive groups of equal length, one per member.
std::vector<int64_t> ByMember(std::span<const int64_t> counts, int64_t members) {
  size_t run = counts.size() / static_cast<size_t>(members);
  std::vector<int64_t> sums;
  for (size_t m = 0; m < static_cast<size_t>(members); ++m)
    sums.push_back(Sum(counts.subspan(m * run, run)));
  return sums;
}

// Returns the number of elements of a row.
int64_t Width(const at::Tensor& rows) {
  int64_t width = 1;
  for (int64_t d = 1; d < rows.dim(); ++d) width *= rows.size(d);
  return width;
}

at::DimVector WithRows(const at::Tensor& like, int64_t rows) {
  at::DimVector sizes(like.sizes().begin(), like.sizes().end());
  sizes[0] = rows;
  return sizes;
}

}  // namespace

RowExchange::RowExchange(const Graph& graph, NodeId node, int64_t members)
    : members_(members), dispatches_(graph[node].op == op::comm_dispatch) {
  const Attrs& attrs = graph.attrs(node);
  most_ = std::get<int64_t>(*attrs.Find(dispatches_ ? "most" : "rows_back"));
  exact_ = attrs.Find("size") != nullptr;
}

std::vector<int64_t> RowExchange::Blocks(std::span<const at::Tensor> operands) const {
  std::vector<int64_t> blocks = Numbers(operands[2]);
  for (int64_t count : blocks)
    TORCH_CHECK(count >= 0, "a count of ", count, " rows, expected 0 or more");
  return blocks;
}

Shares RowExchange::SharesOf(std::span<const at::Tensor> operands) const {
  std::vector<int64_t> sent = ByMember(Numbers(operands[1]), members_);
  std::vector<int64_t> received = ByMember(Blocks(operands), members_);
  TORCH_CHECK(*std::ranges::min_element(sent) >= 0, "a count of rows is negative");
  int64_t rows = operands[0].size(0);
  if (dispatches_) {
    TORCH_CHECK(Sum(sent) == rows, "counts make ", Sum(sent), " rows, there are ", rows);
  } else {
    TORCH_CHECK(Sum(received) <= rows, "counts make ", Sum(received), " rows, there are ", rows);
    TORCH_CHECK(Sum(sent) == most_, "counts make ", Sum(sent), " rows, ", most_, " come back");
  }
  int64_t width = Width(operands[0]);
  for (std::vector<int64_t>* list : {&sent, &received}) {
    for (int64_t& count : *list) count *= width;
  }
  if (!dispatches_) std::swap(sent, received);
  return {std::move(sent), std::move(received)};
}

void RowExchange::Reorder(const at::Tensor& by_member, const at::Tensor& by_expert,
                          std::span<const int64_t> blocks) const {
  size_t experts = blocks.size() / static_cast<size_t>(members_);
  // Start of the block of each member and expert, by member.
  std::vector<int64_t> begins(blocks.size());
  std::exclusive_scan(blocks.begin(), blocks.end(), begins.begin(), int64_t{0});
  int64_t at = 0;
  for (size_t e = 0; e < experts; ++e) {
    for (size_t m = 0; m < static_cast<size_t>(members_); ++m) {
      int64_t count = blocks[m * experts + e];
      if (count == 0) continue;
      at::Tensor member_rows = by_member.narrow(0, begins[m * experts + e], count);
      at::Tensor expert_rows = by_expert.narrow(0, at, count);
      dispatches_ ? expert_rows.copy_(member_rows) : member_rows.copy_(expert_rows);
      at += count;
    }
  }
}

void RowExchange::CheckRoom(std::span<const int64_t> blocks, int64_t member) const {
  if (Sum(blocks) <= most_) return;
  size_t experts = blocks.size() / static_cast<size_t>(members_);
  std::vector<int64_t> by_expert(experts);
  for (size_t i = 0; i < blocks.size(); ++i) by_expert[i % experts] += blocks[i];
  auto worst = std::ranges::max_element(by_expert);
  int64_t first = member * static_cast<int64_t>(experts);
  TORCH_CHECK(false, Sum(blocks), " rows come for experts ", first, " to ",
              first + static_cast<int64_t>(experts) - 1, ", whose rank takes at most ", most_, "; ",
              *worst, " of them for expert ", first + (worst - by_expert.begin()));
}

at::Tensor RowExchange::Pack(std::span<const at::Tensor> operands) const {
  if (dispatches_) return operands[0].contiguous().view({-1});
  std::vector<int64_t> blocks = Blocks(operands);
  at::Tensor payload = at::empty(WithRows(operands[0], Sum(blocks)), operands[0].options());
  Reorder(payload, operands[0], blocks);
  return payload.view({-1});
}

at::Tensor RowExchange::Unpack(const at::Tensor& received, std::span<const at::Tensor> operands,
                               int64_t member) const {
  if (!dispatches_) return received.view(WithRows(operands[0], most_));
  std::vector<int64_t> blocks = Blocks(operands);
  CheckRoom(blocks, member);
  at::TensorOptions options = operands[0].options();
  at::Tensor rows = exact_ ? at::empty(WithRows(operands[0], Sum(blocks)), options)
                           : at::zeros(WithRows(operands[0], most_), options);
  Reorder(received.view(WithRows(operands[0], Sum(blocks))), rows, blocks);
  return rows;
}

}  // namespace heddle::run
