#include "heddle/search/solve/engine/move_messages.h"

#include <algorithm>
#include <bit>
#include <map>

#include "heddle/search/solve/reduce/min_plus.h"

namespace heddle::search {
namespace {

// Exact messages enumerate all sets of other readers, each with all prices. These limits apply to
// moves with more than a few readers.
constexpr size_t kMostReaders = 9;
constexpr size_t kFewReaders = 3;
constexpr size_t kMostPricesRead = size_t{1} << 22;
constexpr uint32_t kNone = UINT32_MAX;

uint32_t WantOf(const SharedReader& reader, size_t choice, uint32_t nth) {
  std::span<const uint32_t> wants = reader.Wants(choice);
  return nth < wants.size() ? wants[nth] : kNone;
}

}  // namespace

std::vector<std::vector<MoveMessages::Want>> MoveMessages::Group(const SharedMove& move) {
  size_t most = kMostReaders;
  while (most > kFewReaders && move.prices->all.size() << (most - 1) > kMostPricesRead) --most;
  std::vector<std::vector<Want>> groups;
  for (uint32_t r = 0; r < move.readers.size(); ++r) {
    size_t next = 0;
    for (uint32_t nth = 0; nth < move.readers[r].most(); ++nth, ++next) {
      while (next < groups.size() && groups[next].size() == most) ++next;
      if (next == groups.size()) groups.emplace_back();
      groups[next].push_back({r, nth});
    }
  }
  return groups;
}

std::vector<MoveMessages> MoveMessages::ListFor(const SharedMove& move) {
  std::vector<std::vector<Want>> groups = Group(move);
  std::vector<double> parts(move.prices->width);
  for (const std::vector<Want>& group : groups) {
    std::vector<bool> wanted(parts.size());
    for (const Want& want : group) {
      const SharedReader& reader = move.readers[want.reader];
      for (size_t c = 0; c < reader.choices(); ++c) {
        if (uint32_t to = WantOf(reader, c, want.nth); to != kNone) wanted[to] = true;
      }
    }
    for (size_t to = 0; to < parts.size(); ++to) parts[to] += wanted[to] ? 1 : 0;
  }
  for (double& part : parts) part = part == 0 ? 0 : 1 / part;
  std::vector<MoveMessages> out;
  for (const std::vector<Want>& group : groups) out.push_back(MoveMessages(move, group, parts));
  return out;
}

MoveMessages::MoveMessages(const SharedMove& move, const std::vector<Want>& wants,
                           const std::vector<double>& parts)
    : members_(1) {
  members_[0].variable = move.from;
  AddReaders(move, wants);
  AddMaker(move, wants);
  AddPrices(move, parts);
  auto [first, last] = std::ranges::minmax(members_, {}, &Member::variable);
  first_ = first.variable;
  last_ = last.variable;
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].to_move.resize(i == 0 ? rows_.size() : columns_.size());
    members_[i].from_move.resize(members_[i].to_move.size());
  }
}

// Columns are the wanted placements.
void MoveMessages::AddReaders(const SharedMove& move, const std::vector<Want>& wants) {
  // The last one is for unwanted placements.
  std::vector<uint32_t> column(move.prices->width + 1, kNone);
  auto column_of = [&](const Want& want, size_t choice) -> uint32_t& {
    uint32_t to = WantOf(move.readers[want.reader], choice, want.nth);
    return to == kNone ? column.back() : column[to];
  };
  for (const Want& want : wants) {
    const SharedReader& reader = move.readers[want.reader];
    if (reader.variable() == move.from) continue;
    for (size_t c = 0; c < reader.choices(); ++c) column_of(want, c) = 0;
  }
  for (uint32_t to = 0; to < column.size(); ++to) {
    if (column[to] == kNone) continue;
    column[to] = static_cast<uint32_t>(columns_.size());
    columns_.push_back(to + 1 == column.size() ? kNone : to);
  }
  for (const Want& want : wants) {
    const SharedReader& reader = move.readers[want.reader];
    if (reader.variable() == move.from) continue;
    Member& member = members_.emplace_back();
    member.variable = reader.variable();
    for (size_t c = 0; c < reader.choices(); ++c) member.place.push_back(column_of(want, c));
  }
}

// Rows are places of the tensor, each with the placement that its maker reads itself, which all
// readers can share.
void MoveMessages::AddMaker(const SharedMove& move, const std::vector<Want>& wants) {
  const Want* own = nullptr;
  for (const Want& want : wants) {
    if (move.readers[want.reader].variable() == move.from) own = &want;
  }
  std::map<Row, uint32_t> row;
  for (size_t c = 0; c < move.sources.size(); ++c) {
    uint32_t own_want = own == nullptr ? kNone : WantOf(move.readers[own->reader], c, own->nth);
    auto [at, added] =
        row.try_emplace({move.sources[c], own_want}, static_cast<uint32_t>(row.size()));
    members_[0].place.push_back(at->second);
    if (added) rows_.push_back(at->first);
  }
}

void MoveMessages::AddPrices(const SharedMove& move, const std::vector<double>& parts) {
  bool as_they_are = rows_.size() == move.prices->places() && columns_.size() == parts.size();
  for (uint32_t i = 0; i < rows_.size(); ++i) as_they_are &= rows_[i] == Row(i, kNone);
  for (uint32_t i = 0; i < columns_.size(); ++i) as_they_are &= columns_[i] == i && parts[i] == 1;
  base_.resize(rows_.size());
  if (as_they_are) {
    prices_ = move.prices;
    return;
  }
  MovePrices prices{columns_.size()};
  prices.all.reserve(rows_.size() * columns_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    auto [source, own_want] = rows_[i];
    auto price = [&](uint32_t to) {
      return to == kNone ? 0 : (*move.prices)(source, to) * parts[to];
    };
    base_[i] = price(own_want);
    for (uint32_t to : columns_) prices.all.push_back(to == own_want ? 0 : price(to));
  }
  prices_ = std::make_shared<const MovePrices>(std::move(prices));
}

const MoveMessages::Member& MoveMessages::MessageTo(size_t member, Scratch& scratch) {
  Member& to = members_[member];
  auto is_news = [&](const Member& m) { return &m != &to && m.to_move_at >= to.from_move_at; };
  if (to.from_move_at != 0 && std::ranges::none_of(members_, is_news)) return to;
  scratch.to_move.clear();
  for (const Member& m : members_) scratch.to_move.push_back(m.to_move.data());
  Costs(member, 0, rows_.size(), to.from_move.data(), scratch);
  to.from_move_at = ++now_;
  to.least_from_move = *std::ranges::min_element(to.from_move);
  if (to.least_from_move == kForbidden) return to;
  for (double& cost : to.from_move) cost -= to.least_from_move;
  return to;
}

const std::vector<double>& MoveMessages::MessageToAfter(size_t member,
                                                        const std::vector<uint32_t>& x,
                                                        Scratch& scratch) const {
  size_t begin = 0;
  size_t end = rows_.size();
  size_t most = std::max(columns_.size(), rows_.size());
  scratch.pins.assign(most * members_.size(), kForbidden);
  scratch.to_move.clear();
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& m = members_[i];
    double* pins = &scratch.pins[i * most];
    bool is_pinned = m.variable < members_[member].variable;
    scratch.to_move.push_back(is_pinned ? pins : m.to_move.data());
    if (!is_pinned) continue;
    uint32_t at = m.place[x[m.variable]];
    pins[at] = 0;
    if (i != 0) continue;
    begin = at;
    end = at + 1;
  }
  scratch.from_move.resize(member == 0 ? rows_.size() : columns_.size());
  Costs(member, begin, end, scratch.from_move.data(), scratch);
  return scratch.from_move;
}

void MoveMessages::SetMessageFrom(size_t member, std::span<const double> message) {
  std::ranges::copy(message, members_[member].to_move.begin());
  members_[member].to_move_at = now_;
}

// For all subsets of the other readers, as bit sets: the sum of their messages by placement. And by
// place of the tensor: the cost of one copy for the whole subset, and the minimum cost of all
// partitions.
void MoveMessages::AddSets(const double* prices, size_t rows, Scratch& scratch) const {
  size_t width = columns_.size();
  size_t sets = size_t{1} << scratch.others.size();
  scratch.sums.assign(sets * width, 0);
  scratch.together.resize(sets * rows);
  scratch.least.assign(sets * rows, 0);
  for (size_t set = 1; set < sets; ++set) {
    size_t lowest = set & (~set + 1);
    double* sums = &scratch.sums[set * width];
    const double* rest = &scratch.sums[(set - lowest) * width];
    const double* one = scratch.others[static_cast<size_t>(std::countr_zero(set))];
    for (size_t t = 0; t < width; ++t) sums[t] = rest[t] + one[t];
    double* together = &scratch.together[set * rows];
    MinOverColumns(prices, rows, width, sums, together);
    double* least = &scratch.least[set * rows];
    std::copy_n(together, rows, least);
    // The block with the lowest reader, and the best partition of the rest.
    for (size_t block = (set - 1) & set; block != 0; block = (block - 1) & set) {
      if ((block & lowest) == 0) continue;
      const double* a = &scratch.together[block * rows];
      const double* b = &scratch.least[(set - block) * rows];
      for (size_t i = 0; i < rows; ++i) least[i] = std::min(least[i], a[i] + b[i]);
    }
  }
}

void MoveMessages::Costs(size_t member, size_t begin, size_t end, double* out,
                         Scratch& scratch) const {
  size_t rows = end - begin;
  size_t width = columns_.size();
  const double* prices = prices_->all.data() + begin * width;
  const double* base = base_.data() + begin;
  scratch.others.clear();
  for (size_t r = 1; r < members_.size(); ++r) {
    if (r != member) scratch.others.push_back(scratch.to_move[r]);
  }
  AddSets(prices, rows, scratch);
  size_t all = (size_t{1} << scratch.others.size()) - 1;
  // Reading prices takes the most time, so it defines the work (work_limit.h).
  scratch.work += (member == 0 ? all : 2 * all + 1) * rows * width / 4;
  if (member == 0) {
    for (size_t i = 0; i < rows; ++i) out[begin + i] = base[i] + scratch.least[all * rows + i];
    return;
  }
  std::fill_n(out, width, kForbidden);
  scratch.rows.resize(rows);
  scratch.columns.resize(width);
  // The readers that share this reader's placement; the others do what is best for them.
  for (size_t with = 0; with <= all; ++with) {
    const double* least = &scratch.least[(all - with) * rows];
    for (size_t i = 0; i < rows; ++i)
      scratch.rows[i] = scratch.to_move[0][begin + i] + base[i] + least[i];
    MinOverRows(prices, rows, width, scratch.rows.data(), scratch.columns.data());
    const double* sums = &scratch.sums[with * width];
    for (size_t t = 0; t < width; ++t) out[t] = std::min(out[t], scratch.columns[t] + sums[t]);
  }
}

}  // namespace heddle::search
