// Messages between one shared move and its variables.
//
// A move costs the price of every placement that some reader wants, each paid once. Given the
// messages of all other variables, a choice of one variable has a minimum cost. For a few readers
// it is computed exactly: readers that want the same placement form a block, and all partitions
// into blocks are considered.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

class MoveMessages {
 public:
  // A variable of the move. Choices with the same place, or the same wanted placement, get the same
  // message. So messages are by place: a place of the tensor for its maker, a placement for a
  // reader.
  struct Member {
    uint32_t variable = 0;
    // By choice.
    std::vector<uint32_t> place;
    // By place: the message to the move (minimum over the choices there), and the message from the
    // move, minus its minimum.
    std::vector<double> to_move;
    std::vector<double> from_move;
    double least_from_move = 0;
    // Times of the last two messages.
    uint64_t to_move_at = 0;
    uint64_t from_move_at = 0;
  };
  // Memory that all moves share, and the number of prices read so far.
  struct Scratch {
    std::vector<const double*> to_move, others;
    std::vector<double> sums, together, least, rows, columns, pins, from_move;
    size_t work = 0;
  };

  // Makes the messages of a move, usually one object. A move with many readers, or with a reader
  // that wants several placements, is split into several that share its prices evenly. Its bound is
  // then too low.
  static std::vector<MoveMessages> ListFor(const SharedMove& move);

  // The variable that makes the tensor, then its readers.
  const std::vector<Member>& members() const { return members_; }
  // The lowest and the highest variable.
  uint32_t first() const { return first_; }
  uint32_t last() const { return last_; }

  // Updates and returns the message from the move to a member.
  const Member& MessageTo(size_t member, Scratch& scratch);
  // The same message, by place and not normalised, if lower variables take the choices of `x`.
  const std::vector<double>& MessageToAfter(size_t member, const std::vector<uint32_t>& x,
                                            Scratch& scratch) const;
  // Sets the message of a member to the move. `message` is by place.
  void SetMessageFrom(size_t member, std::span<const double> message);

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
  // Computes the minimum cost by place of a member, from the messages `scratch.to_move` of all
  // others, with the tensor in one of the rows from `begin` to `end`.
  void Costs(size_t member, size_t begin, size_t end, double* out, Scratch& scratch) const;

  std::vector<Member> members_;
  uint32_t first_ = 0;
  uint32_t last_ = 0;
  // Places of the tensor, with the placement that its maker reads itself; and placements that
  // others want.
  using Row = std::pair<uint32_t, uint32_t>;
  std::vector<Row> rows_;
  std::vector<uint32_t> columns_;
  // By row: the price of the maker's own placement. By row and column: the price of a copy there.
  std::vector<double> base_;
  std::shared_ptr<const MovePrices> prices_;
  uint64_t now_ = 1;
};

}  // namespace heddle::search
