// A loss curve in characters.
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

// Draws the losses of steps from `first_step` on with braille dots. Each column of dots covers the
// same number of steps, from their smallest to their largest loss. Losses that are not finite are
// skipped. Returns an empty string if fewer than two are left.
std::string LossCurve(std::span<const double> losses, int64_t first_step,
                      const CurveSize& size = {});

}  // namespace heddle::run
