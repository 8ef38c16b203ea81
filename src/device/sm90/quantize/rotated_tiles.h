// SPDX-License-Identifier: BSD-3-Clause
// rotated_tiles.h — which rows and heads a tile of rotated rows has, by its number.
#pragma once

#include "device/sm90/quantize/rotated.h"

namespace fa3::sm90 {

// What a producer knows of a tile.
struct RotatedTile {
  TileRows rows;
  TileSource source;
  SequenceRows of;
  i32 first;  // of those
};

// Numbers that ascend from call to call. All lanes of a warp.
template <RotatedConfig kCfg>
class TileFinder {
 public:
  FA3_DEV explicit TileFinder(const QuantizeArgs& args)
      : args_(args), lane_(static_cast<i32>(ptx::lane_index())) {}

  // Tile i, if there is one.
  FA3_DEV RotatedTile find(i32 i) {
    const RotatedGrid& grid = args_.rotated;
    if (i >= grid.tiles) return none(i);
    const i32 part = i / grid.groups;
    if (grid.parts == 0) return find_ragged(i, static_cast<u32>(part));
    const i32 b = part / grid.parts;
    const SequenceRows of = rows_of_warp<true>(args_.axis, args_.batch, b);
    return tile_of(i, b, of, part % grid.parts);
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

  FA3_DEV RotatedTile tile_of(i32 i, i32 b, const SequenceRows& of, i32 part) const {
    const i32 first = part * kCfg.rows(), head = i % args_.rotated.groups * args_.rotated.heads;
    return {{of.used - first, of.rows - first, scaled_rows(of, b) - first,
             min(args_.heads - head, args_.rotated.heads)},
            {of.begin + first, head, b, i},
            of,
            first};
  }

  // Of sequences with lengths of their own, part `part` of all: tiles come in order, so the search
  // goes on from the last one, 32 sequences at a time. Lengths may be wrong: sums may overflow, but
  // what is found is a part of its sequence.
  FA3_DEV RotatedTile find_ragged(i32 i, u32 part) {
    FA3_NO_UNROLL
    for (; sequence_ <= args_.batch; sequence_ += 32) {
      const i32 b = sequence_ + lane_;
      SequenceRows of;
      if (b <= args_.batch) of = rows_of<true>(args_.axis, args_.batch, b);
      const i32 rows = b <= args_.batch ? max(of.rows, scaled_rows(of, b)) : 0;
      const auto parts = static_cast<u32>(rows / kCfg.rows() + (rows % kCfg.rows() > 0));
      u32 behind = parts;  // parts of this sequence and those before it
      FA3_UNROLL
      for (i32 m = 1; m < 32; m *= 2) {
        const u32 before = ptx::shfl_up(behind, static_cast<u32>(m));
        if (lane_ >= m) behind += before;
      }
      const u32 found = ptx::ballot(part - before_ - (behind - parts) < parts);
      if (found != 0) {
        const auto of_lane = [lane = 31 - static_cast<u32>(ptx::clz(found & -found))](auto x) {
          return ptx::shfl_idx(x, lane);
        };
        before_ += of_lane(behind - parts), sequence_ = of_lane(b);
        return tile_of(i, sequence_, {of_lane(of.begin), of_lane(of.rows), of_lane(of.used)},
                       static_cast<i32>(part - before_));
      }
      before_ += ptx::shfl_idx(behind, 31);
    }
    return none(i);
  }

  const QuantizeArgs& args_;
  const i32 lane_;
  i32 sequence_ = 0;  // with lengths of their own: of the last tile,
  u32 before_ = 0;    // and the parts of those before it
};

}  // namespace fa3::sm90
