// SPDX-License-Identifier: BSD-3-Clause
// alibi.h — ALiBi as a score functor: s − slope·|distance of query and key|, the query on the
// bottom-right diagonal.
#pragma once

#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/warp/element.h"

namespace fa3 {

struct AlibiScore {
  static constexpr bool kActive = true;
  struct Row {
    float slope;  // negated
    i32 position;
  };
  struct Tile {
    float slope;
    float distance;  // of the query from the tile's first key
  };

  FA3_DEV static Row row(const ElementArgs& args, const ElementPlace& place, i32 row) {
    float slope = 0;
    // Rows of no sequence have no slope: their batch entry is one beyond the last.
    if (args.alibi_slopes != nullptr && row < place.q_used) {
      slope = ptx::ld_global_nc(args.alibi_slopes + place.batch * args.slope_batch + place.head);
    }
    return {-slope * args.slope_factor, row + place.kv_used - place.q_used};
  }
  FA3_DEV static Tile tile(const Row& row, i32 first_key) {
    return {row.slope, static_cast<float>(row.position - first_key)};
  }
  FA3_DEV static float score(float s, const Tile& tile, int n) {
    const float distance = tile.distance - static_cast<float>(n);
    return ptx::fma(tile.slope, ptx::max(distance, -distance), s);
  }
};

}  // namespace fa3
