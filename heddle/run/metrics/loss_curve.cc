#include "heddle/run/metrics/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/core.h>

namespace heddle::run {
namespace {

// A braille character has 2 x 4 dots; its code point is U+2800 plus one bit per dot.
constexpr int64_t kDotsAcross = 2;
constexpr int64_t kDotsDown = 4;
constexpr uint8_t kDots[kDotsDown][kDotsAcross] = {
    {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

struct Range {
  double least = INFINITY;
  double most = -INFINITY;
  bool empty() const { return least > most; }
  void Add(double x) {
    if (!std::isfinite(x)) return;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  void Add(const Range& other) {
    Add(other.least);
    Add(other.most);
  }
};

// Returns the range of losses in each column.
std::vector<Range> Columns(std::span<const double> losses, int64_t count) {
  std::vector<Range> columns(static_cast<size_t>(count));
  for (size_t i = 0; i < losses.size(); ++i)
    columns[i * columns.size() / losses.size()].Add(losses[i]);
  // Columns without steps continue the line.
  for (size_t c = 1; c < columns.size(); ++c) {
    if (columns[c].empty()) columns[c] = columns[c - 1];
  }
  return columns;
}

class Canvas {
 public:
  Canvas(int64_t width, int64_t height)
      : width_(width), cells_(static_cast<size_t>(width * height)) {}
  void Set(int64_t x, int64_t y) {
    cells_[static_cast<size_t>(y / kDotsDown * width_ + x / kDotsAcross)] |=
        kDots[y % kDotsDown][x % kDotsAcross];
  }
  // Returns a row without trailing blanks.
  std::string Row(int64_t row) const {
    auto begin = cells_.begin() + row * width_;
    auto end = begin + width_;
    while (end != begin && *(end - 1) == 0) --end;
    std::string out;
    for (auto cell = begin; cell != end; ++cell) {
      out += *cell == 0 ? std::string(" ")
                        : std::string{'\xE2', static_cast<char>(0xA0 | *cell >> 6),
                                      static_cast<char>(0x80 | (*cell & 0x3F))};
    }
    return out;
  }

 private:
  int64_t width_;
  std::vector<uint8_t> cells_;
};

}  // namespace

std::string LossCurve(std::span<const double> losses, int64_t first_step, const CurveSize& size) {
  Range all;
  int64_t finite = 0;
  for (double loss : losses) {
    all.Add(loss);
    finite += std::isfinite(loss) ? 1 : 0;
  }
  if (finite < 2) return "";
  int64_t dots_high = size.height * kDotsDown;
  double scale =
      all.most > all.least ? static_cast<double>(dots_high - 1) / (all.most - all.least) : 0;
  auto dot = [&](double loss) { return std::llround((all.most - loss) * scale); };
  Canvas canvas(size.width, size.height);
  Range before;
  std::vector<Range> columns = Columns(losses, size.width * kDotsAcross);
  for (size_t x = 0; x < columns.size(); ++x) {
    if (columns[x].empty()) continue;
    Range drawn = columns[x];
    // Extends the column to the nearest dot of the previous one, so that the curve has no gaps.
    if (!before.empty() && before.least > drawn.most) drawn.Add(before.least);
    if (!before.empty() && before.most < drawn.least) drawn.Add(before.most);
    for (int64_t y = dot(drawn.most); y <= dot(drawn.least); ++y)
      canvas.Set(static_cast<int64_t>(x), y);
    before = columns[x];
  }
  std::string out;
  for (int64_t row = 0; row < size.height; ++row) {
    bool labelled = row == 0 || row == size.height - 1 || row == size.height / 2;
    double at = all.most - (all.most - all.least) * static_cast<double>(row) /
                               static_cast<double>(std::max<int64_t>(size.height - 1, 1));
    out += (labelled ? fmt::format("{:>8.4g} ┤", at) : std::string(9, ' ') + "│") +
           canvas.Row(row) + "\n";
  }
  std::string last = fmt::format("step {}", first_step + static_cast<int64_t>(losses.size()) - 1);
  std::string first = fmt::format("{}", first_step);
  int64_t gap = size.width - static_cast<int64_t>(first.size() + last.size());
  std::string line;
  for (int64_t i = 0; i < size.width; ++i) line += "─";
  return out + std::string(9, ' ') + "└" + line + "\n" + std::string(10, ' ') + first +
         std::string(static_cast<size_t>(std::max<int64_t>(gap, 1)), ' ') + last + "\n";
}

}  // namespace heddle::run
