#include "heddle/run/checkpoint/grid.h"

#include <algorithm>
#include <map>

namespace heddle::run {
namespace {

Failure GridError(const TensorInfo& tensor, std::string_view what) {
  return Error(Diag::kCheckpoint, "`{}` of {} {}", tensor.name, FormatSizes(tensor.shape), what);
}

// Returns the positions at which a dimension is cut, and its end.
Result<Sizes> CutsOf(const TensorInfo& tensor, std::span<const PlacedPiece> pieces, size_t dim) {
  std::map<int64_t, int64_t> size_by_begin;
  for (const PlacedPiece& piece : pieces) {
    auto [at, is_new] = size_by_begin.emplace(piece.slice.offset[dim], piece.slice.shape[dim]);
    if (!is_new && at->second != piece.slice.shape[dim])
      return GridError(
          tensor, fmt::format("has pieces of {} and of {} that both begin at {} of dimension {}",
                              at->second, piece.slice.shape[dim], at->first, dim));
  }
  Sizes cuts;
  int64_t end = 0;
  for (auto [begin, size] : size_by_begin) {
    if (begin != end)
      return GridError(
          tensor, fmt::format("has pieces that end at {} and pieces that begin at {} of dimension "
                              "{}; they must meet",
                              end, begin, dim));
    cuts.push_back(begin);
    // Cannot overflow: sizes of pieces are sizes of real memory, or were checked against the
    // tensor's.
    end = begin + size;
  }
  if (end != tensor.shape[dim])
    return GridError(tensor, fmt::format("has pieces that end at {} of dimension {}", end, dim));
  cuts.push_back(end);
  return cuts;
}

size_t PartWith(const Sizes& cuts, int64_t index) {
  return static_cast<size_t>(std::ranges::upper_bound(cuts, index) - cuts.begin()) - 1;
}

// Advances to the next position of the box [first, last], last dimension fastest. Returns false
// after the last position.
bool Next(std::vector<size_t>& at, std::span<const size_t> first, std::span<const size_t> last) {
  for (size_t d = at.size(); d-- > 0;) {
    if (at[d]++ < last[d]) return true;
    at[d] = first[d];
  }
  return false;
}

}  // namespace

Result<Grid> Grid::Make(const TensorInfo& tensor, std::span<const PlacedPiece> pieces) {
  Grid grid;
  if (CountOf(tensor.shape) == 0 && pieces.empty()) return grid;
  if (pieces.empty()) return GridError(tensor, "has no pieces");
  size_t cells = 1;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    HEDDLE_TRY(Sizes cuts, CutsOf(tensor, pieces, d));
    grid.cuts_.push_back(std::move(cuts));
    // Cannot overflow: both factors are at most the number of pieces.
    cells *= grid.cuts_.back().size() - 1;
    if (cells > pieces.size()) break;
  }
  if (cells != pieces.size())
    return GridError(
        tensor,
        fmt::format("has {} pieces, which do not cover each element exactly once", pieces.size()));
  constexpr int64_t kNone = -1;
  grid.ranks_.assign(cells, kNone);
  for (const PlacedPiece& piece : pieces) {
    size_t cell = 0;
    for (size_t d = 0; d < grid.cuts_.size(); ++d)
      cell = cell * (grid.cuts_[d].size() - 1) + PartWith(grid.cuts_[d], piece.slice.offset[d]);
    if (grid.ranks_[cell] != kNone)
      return GridError(tensor,
                       fmt::format("has two pieces at {}, from ranks {} and {}",
                                   FormatSizes(piece.slice.offset), grid.ranks_[cell], piece.rank));
    grid.ranks_[cell] = piece.rank;
  }
  return grid;
}

std::vector<Grid::Cell> Grid::Cells(const Slice& slice) const {
  std::vector<Cell> cells;
  if (CountOf(slice.shape) == 0) return cells;
  std::vector<size_t> first, last;
  for (size_t d = 0; d < cuts_.size(); ++d) {
    first.push_back(PartWith(cuts_[d], slice.offset[d]));
    last.push_back(PartWith(cuts_[d], slice.offset[d] + slice.shape[d] - 1));
  }
  std::vector<size_t> at = first;
  do {
    Cell cell;
    size_t position = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      int64_t begin = cuts_[d][at[d]], end = cuts_[d][at[d] + 1];
      cell.piece.offset.push_back(begin);
      cell.piece.shape.push_back(end - begin);
      int64_t common = std::max(begin, slice.offset[d]);
      cell.common.offset.push_back(common);
      cell.common.shape.push_back(std::min(end, slice.offset[d] + slice.shape[d]) - common);
      position = position * (cuts_[d].size() - 1) + at[d];
    }
    cell.rank = ranks_[position];
    cells.push_back(std::move(cell));
  } while (Next(at, first, last));
  return cells;
}

}  // namespace heddle::run
