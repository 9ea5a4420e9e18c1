// The curve of step time over peak memory, as one self-contained HTML file without scripts.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/units.h"

namespace heddle {

struct CurvePoint {
  std::string name;
  Bytes peak;
  Nanos step;
  // Further details, by column.
  std::vector<std::string> details;
};

struct MemoryCurve {
  std::string title;
  std::vector<std::string> columns;
  // In descending order of peak memory.
  std::vector<CurvePoint> points;
};

std::string FormatCurvePage(const MemoryCurve& curve);

}  // namespace heddle
