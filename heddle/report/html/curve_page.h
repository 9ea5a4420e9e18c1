// The curve of step time against peak memory, as one HTML file that needs nothing else, not even a script.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/units.h"

namespace heddle {

struct CurvePoint {
  std::string name;
  Bytes peak;
  Nanos step;
  // What else is to be said of it, by column.
  std::vector<std::string> details;
};

struct MemoryCurve {
  std::string title;
  std::vector<std::string> columns;
  // From the largest peak to the smallest.
  std::vector<CurvePoint> points;
};

std::string FormatCurvePage(const MemoryCurve& curve);

}  // namespace heddle
