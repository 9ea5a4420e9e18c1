// A curve in characters.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace heddle::run {

struct CurveSize {
  // In characters, without the labels of the axes.
  int64_t width = 64;
  int64_t height = 12;
};

// The losses of steps `first_step` and up, drawn with braille dots: a column of dots stands for equally many steps and shows their
// least and largest loss. Losses that are not finite are left out. Empty if fewer than two are left.
std::string LossCurve(std::span<const double> losses, int64_t first_step,
                      const CurveSize& size = {});

}  // namespace heddle::run
