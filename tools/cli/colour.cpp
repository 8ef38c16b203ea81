// SPDX-License-Identifier: BSD-3-Clause
// colour.cpp — the ramp: a path through OKLab. Source: Ottosson 2020, "A perceptual color
// space for image processing".
#include "colour.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fa3::cli {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Linear-light sRGB of an OKLab colour; components outside 0…1 lie outside the gamut.
std::array<double, 3> linear_rgb(double lightness, double a, double b) {
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {+4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

bool in_gamut(const std::array<double, 3>& rgb) {
  return std::all_of(rgb.begin(), rgb.end(), [](double c) { return c >= 0 && c <= 1; });
}

int encode(double linear) {
  const double c = std::clamp(linear, 0.0, 1.0);
  const double srgb = c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055;
  return static_cast<int>(std::lround(255 * srgb));
}

}  // namespace

Rgb ramp(double t) {
  t = std::clamp(t, 0.0, 1.0);
  const double lightness = 0.14 + 0.83 * t;
  const double hue = (285 + 180 * t) * kPi / 180;  // violet, magenta, red, orange, yellow
  // As colourful as the gamut allows, up to a limit.
  for (double chroma = 0.20; chroma > 0; chroma -= 0.002) {
    const auto rgb = linear_rgb(lightness, chroma * std::cos(hue), chroma * std::sin(hue));
    if (in_gamut(rgb)) return {encode(rgb[0]), encode(rgb[1]), encode(rgb[2])};
  }
  const auto grey = linear_rgb(lightness, 0, 0);
  return {encode(grey[0]), encode(grey[1]), encode(grey[2])};
}

}  // namespace fa3::cli
