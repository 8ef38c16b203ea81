// SPDX-License-Identifier: BSD-3-Clause
// picture.h — a heat map with axes and a colour bar as a PNG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fa3::cli {

// A grid of probabilities to draw: rows downwards (queries), columns to the right (keys).
struct HeatMap {
  int rows = 0;
  int columns = 0;
  std::vector<float> value;  // rows × columns, probabilities; negative = hidden by the mask

  int64_t queries = 0, keys = 0;  // that the grid covers
  int64_t queries_per_row = 1, keys_per_column = 1;

  std::string title;
  std::vector<std::string> notes;  // lines below the picture
};

// The bytes of a PNG file. Throws CliError{kFailed} when libpng cannot encode them, std::bad_alloc.
std::string draw_png(const HeatMap& map);

}  // namespace fa3::cli
