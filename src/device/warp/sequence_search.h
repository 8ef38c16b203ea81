// SPDX-License-Identifier: BSD-3-Clause
// sequence_search.h — which sequence a tile belongs to, where sequences have lengths of their own
// and their tiles are numbered one sequence after the other.
#pragma once

#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3 {

// By a whole warp, all lanes alike. Indices only grow, so the search resumes at the 32 sequences
// where it ended.
struct SequenceSearch {
  u32 group = 0;   // first of 32 sequences
  u32 before = 0;  // tiles of the sequences before them

  struct Found {
    i32 batch;  // −1: index is beyond the last tile
    u32 tiles;  // of the sequence
    u32 index;  // within it; where lengths lie so that sums overflow, any
  };
  // tiles_of(b): of sequence b, which is up to 31 beyond `last`.
  template <class TilesOf>
  FA3_DEV Found find(i32 last, u32 index, const TilesOf& tiles_of) {
    for (; group <= static_cast<u32>(last); group += 32) {
      const u32 mine = tiles_of(static_cast<i32>(group + ptx::lane_index()));
      u32 through = mine;  // tiles up to and including this lane's sequence
      FA3_UNROLL
      for (u32 step = 1; step < 32; step *= 2) {
        const u32 left = ptx::shfl_up(through, step);
        if (ptx::lane_index() >= step) through += left;
      }
      const u32 lane = ptx::redux_add(before + through <= index);  // sequences that end before
      if (lane < 32) {
        const u32 tiles = ptx::shfl_idx(mine, lane), start = ptx::shfl_idx(through - mine, lane);
        return {static_cast<i32>(group + lane), tiles, index - before - start};
      }
      before += ptx::shfl_idx(through, 31);
    }
    return {-1, 0, 0};
  }
};

}  // namespace fa3
