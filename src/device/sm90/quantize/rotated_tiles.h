// SPDX-License-Identifier: BSD-3-Clause
// rotated_tiles.h — which rows and heads a tile of rotated rows has, by its number.
#pragma once

#include "device/sm90/quantize/rotated.h"
#include "device/warp/sequence_search.h"

namespace fa3::sm90 {

// What a producer knows of a tile.
struct RotatedTile {
  TileRows rows;
  RotatedSource source;
  SequenceRows of;
  i32 first;  // of those
};

// Numbers that ascend from call to call. All lanes of a warp.
template <RotatedConfig kCfg>
class TileFinder {
 public:
  FA3_DEV explicit TileFinder(const QuantizeArgs& args) : args_(args) {}

  // Tile i, if there is one.
  FA3_DEV RotatedTile find(i32 i) {
    const RotatedGrid& grid = args_.rotated;
    if (i >= grid.tiles) return none(i);
    i32 part = i / grid.groups, b = 0;
    if (grid.parts > 0) {
      b = part / grid.parts, part %= grid.parts;
    } else {
      const SequenceSearch::Found found = search_.find(
          args_.batch, static_cast<u32>(part), [&](i32 sequence) { return parts_of(sequence); });
      if (found.batch < 0) return none(i);
      // Where lengths lie, sums may overflow: then it is some part of the sequence.
      b = found.batch, part = static_cast<i32>(min(found.index, max(found.tiles, 1u) - 1));
    }
    const SequenceRows of = rows_of_warp<true>(args_.axis, args_.batch, b);
    const i32 first = part * kCfg.rows(), head = i % grid.groups * grid.heads;
    return {{of.used - first, of.rows - first, scaled_rows(of, b) - first,
             min(args_.heads - head, grid.heads)},
            {of.begin + first, head, b, i},
            of,
            first};
  }

  // Where its codes and scales go. Any lane.
  FA3_DEV TileTarget target_of(const RotatedTile& tile) const {
    const QuantizePlace place{tile.source.sequence, tile.source.head, tile.of};
    return {args_.codes.data + place.at(args_.codes, tile.first),
            scales_of(args_, place) + tile.first * args_.scale.row};
  }

 private:
  FA3_DEV static RotatedTile none(i32 i) {
    RotatedTile tile{};
    tile.source.tile = i;
    return tile;
  }

  // Rows of a sequence that have scales.
  FA3_DEV i32 scaled_rows(const SequenceRows& of, i32 b) const {
    return args_.by_total_row ? of.rows : b < args_.batch ? args_.most_rows : 0;
  }

  FA3_DEV u32 parts_of(i32 b) const {
    if (b > args_.batch) return 0;
    const SequenceRows of = rows_of<true>(args_.axis, args_.batch, b);
    const i32 rows = max(of.rows, scaled_rows(of, b));
    return static_cast<u32>(rows / kCfg.rows() + (rows % kCfg.rows() > 0));
  }

  const QuantizeArgs& args_;
  SequenceSearch search_;  // of parts
};

}  // namespace fa3::sm90
