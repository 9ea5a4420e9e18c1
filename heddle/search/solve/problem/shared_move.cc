#include "heddle/search/solve/problem/shared_move.h"

namespace heddle::search {

SharedReader::SharedReader(uint32_t variable, const std::vector<std::vector<uint32_t>>& wants)
    : variable_(variable), choices_(wants.size()) {
  for (const std::vector<uint32_t>& want : wants) most_ = std::max(most_, want.size());
  wants_.resize(choices_ * most_, kNone);
  for (size_t c = 0; c < choices_; ++c) std::ranges::copy(wants[c], wants_.data() + c * most_);
}

void SharedReader::Keep(const std::vector<uint32_t>& kept) {
  std::vector<uint32_t> left;
  left.reserve(kept.size() * most_);
  for (uint32_t k : kept)
    left.insert(left.end(), wants_.data() + k * most_, wants_.data() + (k + 1) * most_);
  wants_ = std::move(left);
  choices_ = kept.size();
}

double SharedMove::Cost(const std::vector<uint32_t>& x) const {
  double sum = 0;
  ForEachCopy(x, [&](uint32_t, double price) { sum += price; });
  return sum;
}

std::vector<size_t> WantedBy(const std::vector<SharedReader>& readers, size_t placements) {
  std::vector<size_t> out(placements);
  for (const SharedReader& reader : readers) {
    std::vector<bool> wanted(out.size());
    for (size_t c = 0; c < reader.choices(); ++c) {
      for (uint32_t to : reader.Wants(c)) wanted[to] = true;
    }
    for (size_t to = 0; to < out.size(); ++to) out[to] += wanted[to];
  }
  return out;
}

std::vector<bool> PlacesOf(const SharedMove& move) {
  std::vector<bool> out(move.prices->places());
  for (uint32_t place : move.sources) out[place] = true;
  return out;
}

std::vector<double> PricesAlone(const SharedMove& move, const SharedReader& reader) {
  std::vector<bool> occurs = PlacesOf(move);
  std::vector<double> out(occurs.size() * reader.choices());
  for (uint32_t place = 0; place < occurs.size(); ++place) {
    for (size_t r = 0; occurs[place] && r < reader.choices(); ++r) {
      for (uint32_t to : reader.Wants(r))
        out[place * reader.choices() + r] += (*move.prices)(place, to);
    }
  }
  return out;
}

SharedMove KeepChoices(SharedMove move, const ChoiceSets& kept) {
  move.sources = Select(move.sources, kept[move.from]);
  for (SharedReader& reader : move.readers) reader.Keep(kept[reader.variable()]);
  return move;
}

}  // namespace heddle::search
