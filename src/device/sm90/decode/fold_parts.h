// SPDX-License-Identifier: BSD-3-Clause
// fold_parts.h — merges the parts of a fixed number of keys (common/key_parts.h) of decode tiles,
// in the order and by the arithmetic of the forward.
#pragma once

#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/sm90/common/key_parts.h"
#include "device/sm90/decode/merged_row.h"
#include "device/sm90/decode/units.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// As RowSoftmax has a row.
struct FoldedSum {
  float max, scale_log2;

  FA3_DEV float log2_of(float sink) const {
    return ptx::fma(sink, kLog2e, max == -kInf ? 0.f : -(max * scale_log2));
  }
  FA3_DEV float lse(float sum) const { return row_lse(max, sum, scale_log2); }
};

// The rows of a unit whose keys are in parts of a fixed number: a warp each.
template <CombineConfig kCfg>
struct PartsFolder {
  using Row = MergedRow<kCfg>;
  static constexpr u32 kUnroll = CombineConfig::kFewParts;
  using Two = ptx::Vec<float, 2>;

  const CombineArgs& args;
  const DecodeUnit& unit;
  u32 slot, count;

  FA3_DEV void run() const {
    FA3_NO_UNROLL
    for (u32 row = ptx::block_index_y() * CombineConfig::kWarps + ptx::warp_index();
         row < kCfg.rows && packed_row(args.shape, unit, row).query < unit.q.rows;
         row += ptx::grid_dim_y() * CombineConfig::kWarps)
      fold_row(row);
  }

 private:
  // From the last part to the first, of which as many are read at once as leave together.
  FA3_DEV void fold_row(u32 row) const {
    Four o[Row::kFours] = {};
    RowTotal total{-kInf, 0.f};
    FA3_NO_UNROLL
    for (u32 begin = 0; begin < count; begin += kUnroll) {
      Four x[kUnroll][Row::kFours];
      Two of_part[kUnroll];
      FA3_UNROLL
      for (u32 u = 0; u < kUnroll; ++u) {
        of_part[u] = Two{{-kInf, 0.f}};
        FA3_UNROLL
        for (int c = 0; c < Row::kFours; ++c) x[u][c] = Four{{0, 0, 0, 0}};
        if (begin + u < count) read(slot + count - 1 - (begin + u), row, of_part[u], x[u]);
      }
      FA3_UNROLL
      for (u32 u = 0; u < kUnroll; ++u) {
        if (begin + u == 0) {
          total = {of_part[u][0], of_part[u][1]};
          FA3_UNROLL
          for (int c = 0; c < Row::kFours; ++c) o[c] = x[u][c];
          continue;
        }
        const FoldWeights weights =
            fold(total, {of_part[u][0], of_part[u][1]}, args.parts.scale_log2);
        FA3_UNROLL
        for (int c = 0; c < Row::kFours; ++c) {
          FA3_UNROLL
          for (int n = 0; n < 4; ++n) o[c][n] = fold(o[c][n], x[u][c][n], weights);
        }
      }
    }
    store_row<kCfg>(args, unit, row, o, total.sum, FoldedSum{total.max, args.parts.scale_log2});
  }
  FA3_DEV void read(u32 at, u32 row, Two& total, Four (&x)[Row::kFours]) const {
    const u32 place = at * static_cast<u32>(kCfg.rows) + row;
    total = ptx::ld_global(reinterpret_cast<const Two*>(args.parts.lse) + place);
    FA3_UNROLL
    for (int c = 0; c < Row::kFours; ++c) {
      if (Row::column(c) < kCfg.head_dim_v)
        x[c] = ptx::ld_global(reinterpret_cast<const Four*>(
            args.parts.o + u64{place} * kCfg.head_dim_v + static_cast<u32>(Row::column(c))));
    }
  }
};

template <CombineConfig kCfg>
FA3_DEV void fold_parts(const CombineArgs& args) {
  if (args.waits) ptx::pdl_wait();
  DecodeUnits<kCfg> units(args.shape);
  const u32 index = ptx::block_index_x();
  const DecodeUnit unit = units.of(ptx::block_index_z(), static_cast<i32>(index / args.row_tiles),
                                   index % args.row_tiles);
  ptx::pdl_wait();
  if (unit.length == 0) return;
  const auto parts = UnitParts<kCfg.part_tiles>::of(unit, args.shape, args.parts, kCfg.rows);
  if (parts.one()) return;
  PartsFolder<kCfg>{args, unit, parts.slot, static_cast<u32>(parts.end - parts.first)}.run();
}

}  // namespace fa3::sm90
