// SPDX-License-Identifier: BSD-3-Clause
// colour.h — a perceptually even colour ramp from near-black violet over red to light yellow.
#pragma once

namespace fa3::cli {

struct Rgb {
  int red, green, blue;  // 0…255, sRGB
};

// Colour of t in 0…1. Lightness rises linearly, so that equal steps of t look equal, also in grey.
Rgb ramp(double t);

}  // namespace fa3::cli
