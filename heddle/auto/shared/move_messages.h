// What the decisions of a move tell each other about their choices.
//
// A move costs what it takes to bring a tensor to every placement that some reader wants, each paid once. From what the others say about
// their choices follows what a choice of one decision costs at least. For a few readers that is exact: readers that want the same
// placement form a block, and every way to put readers into blocks is looked at.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "heddle/auto/shared/shared_moves.h"

namespace heddle {

class MoveMessages {
 public:
  // One decision. Choices that leave the tensor in the same place, or want the same placement, are told the same.
  struct Member {
    uint32_t decision = 0;
    // By choice.
    std::vector<uint32_t> place;
    // By place: the least that it said about its choices there; and what it was told, less the least of that.
    std::vector<double> said;
    std::vector<double> told;
    double least_told = 0;
    // When that was.
    uint64_t said_at = 0;
    uint64_t told_at = 0;
  };
  // Memory for all who ask, and how many prices they have read.
  struct Scratch {
    std::vector<const double*> said, others;
    std::vector<double> sums, together, least, rows, columns, pins, told;
    size_t work = 0;
  };

  // Mostly one for a move. Where a reader wants several placements at once, or there are many readers, each has a part of them, and of every
  // price: what they tell is too little rather than too much then.
  static std::vector<MoveMessages> ListFor(const SharedMove& move);

  // The decision that makes the tensor, and those that read it.
  const std::vector<Member>& members() const { return members_; }
  // Those that come first and last.
  uint32_t first() const { return first_; }
  uint32_t last() const { return last_; }

  // What others say, by choice of a member, and what is taken off all of it.
  const Member& Tell(size_t member, Scratch& scratch);
  // By place of a member: what it costs if decisions before it choose as `x` does, and those behind it are as they say.
  const std::vector<double>& TellAfter(size_t member, const std::vector<uint32_t>& x,
                                       Scratch& scratch) const;
  // `said` is by place.
  void Say(size_t member, std::span<const double> said);

 private:
  struct Want {
    uint32_t reader;
    uint32_t nth;
  };
  static std::vector<std::vector<Want>> Group(const SharedMove& move);
  MoveMessages(const SharedMove& move, const std::vector<Want>& wants,
               const std::vector<double>& parts);
  void AddReaders(const SharedMove& move, const std::vector<Want>& wants);
  void AddMaker(const SharedMove& move, const std::vector<Want>& wants);
  void AddPrices(const SharedMove& move, const std::vector<double>& parts);

  void AddSets(const double* prices, size_t rows, Scratch& scratch) const;
  // By place of a member, from what `scratch.said` has of all others, where the tensor lies in the rows from `begin` to `end`.
  void Costs(size_t member, size_t begin, size_t end, double* out, Scratch& scratch) const;

  std::vector<Member> members_;
  uint32_t first_ = 0;
  uint32_t last_ = 0;
  // Places where the tensor lies, with the placement that its maker wants itself; and placements that others want.
  using Row = std::pair<uint32_t, uint32_t>;
  std::vector<Row> rows_;
  std::vector<uint32_t> columns_;
  // By row: what is paid anyway; and by row and column what it takes to bring the tensor there.
  std::vector<double> base_;
  std::shared_ptr<const MovePrices> prices_;
  uint64_t now_ = 1;
};

}  // namespace heddle
