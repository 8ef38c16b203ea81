// SPDX-License-Identifier: BSD-3-Clause
// v_image.cpp — where a code goes in a tile: orders of keys and columns and the swizzle are the
// kernel's own (device/hopper).
#include "backend/cpu/v_image.h"

#include <algorithm>

#include "device/hopper/swizzle.h"
#include "device/hopper/tile_layout.h"
#include "device/warp/fragment.h"

namespace fa3::cpu {

void write_v_image(const Problem& p, const Buffers& x, int64_t b, int64_t head) {
  const TurnedTile tile{static_cast<int>(p.image.keys), static_cast<int>(p.image.columns)};
  const Sequence rows = sequence_of(p, x, Axis::kToken, b);
  const int64_t of_head = image_tiles(p.q, p.batch, tile.keys);
  const int64_t first =
      p.q.varlen ? head * of_head + rows.begin / tile.keys + b : (b * p.heads_q + head) * of_head;
  const Layout& layout = p.layout[kCodes];
  const uint8_t* const codes =
      x.in<uint8_t>(kCodes) + b * layout.batch + rows.begin * layout.row + head * layout.head;
  const int64_t columns = p.head_dim_qk;
  const auto width = static_cast<u32>(tile.panel_width());
  for (int64_t begin = 0, t = first; begin < rows.len; begin += tile.keys, ++t) {
    uint8_t* const to = x.out<uint8_t>(kImage) + t * tile.bytes();
    for (u32 n = 0; n < static_cast<u32>(tile.columns); ++n) {
      for (u32 k = 0; k < static_cast<u32>(tile.keys); ++k) {
        const int64_t row = begin + sigma(k), column = tau(n);
        const bool counts = row < rows.len && column < columns;
        to[k / width * static_cast<u32>(tile.panel_bytes()) +
           panel_offset(n, k % width, tile.swizzle())] =
            counts ? codes[row * layout.row + column] : uint8_t{0};
      }
    }
  }
}

}  // namespace fa3::cpu
