// SPDX-License-Identifier: BSD-3-Clause
// combine.cuh — merges the parts of decode tiles that several CTAs have computed:
//   LSE = ln Σ exp(LSEᵢ),   O = Σ exp(LSEᵢ − LSE)·Oᵢ,   parts in the order of their keys.
// CONTRACT  parts as decode() leaves them for the same shape.
// GRID      x and z: units, x: tiles of rows of all sequences, z: KV heads; or x: CTAs of decode(),
//           each for the unit that begins in its share and does not end there: the fewer, since
//           CTAs that wait for decode() take room beside it · y: packed rows of the tile, four or
//           one at a time
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/sm90/decode/config.h"
#include "device/sm90/decode/fold_parts.h"
#include "device/sm90/decode/merged_row.h"
#include "device/sm90/decode/store.h"
#include "device/sm90/decode/units.h"
#include "device/warp/merge.h"

namespace fa3::sm90 {

// A row's parts by a warp, or by several: warp `warp` of `warps` has parts warp, warp + warps, …
// Lanes have its columns, 4 neighbours each, every 128th four.
template <CombineConfig kCfg>
struct CombineRow {
  static constexpr int kFours = MergedRow<kCfg>::kFours;
  static constexpr u32 kUnroll = CombineConfig::kFewParts;
  const DecodeParts& parts;
  u32 first, stride;  // CTA of the first part, and from one to the next
  u32 count;
  u32 row;  // of the tile
  u32 warp, warps;

  FA3_DEV u32 place(u32 part) const {
    return part_slot(first + part * stride, part == 0) * static_cast<u32>(kCfg.rows) + row;
  }
  FA3_DEV static i32 column(int c) { return MergedRow<kCfg>::column(c); }

  // The parts of the warp: columns of its lanes, the greatest LSE, and the sum of weights relative
  // to that.
  FA3_DEV void add(Four (&o)[kFours], float& most, float& sum) const {
    FA3_NO_UNROLL
    for (u32 begin = warp; begin < count; begin += warps * kUnroll) {
      Four x[kUnroll][kFours];
      float lse[kUnroll];
      FA3_UNROLL
      for (u32 u = 0; u < kUnroll; ++u) {
        const u32 part = begin + warps * u, at = place(min(part, count - 1));
        lse[u] = part < count ? ptx::ld_global(parts.lse + at) : -kInf;
        FA3_UNROLL
        for (int c = 0; c < kFours; ++c) {
          x[u][c] = Four{{0, 0, 0, 0}};
          if (part < count && column(c) < kCfg.head_dim_v)
            x[u][c] = ptx::ld_global(reinterpret_cast<const Four*>(
                parts.o + u64{at} * kCfg.head_dim_v + static_cast<u32>(column(c))));
        }
      }
      merge_parts(o, most, sum, lse, x);
    }
  }
};

// What the warps of a CTA have added up.
template <CombineConfig kCfg>
struct CombineSmem {
  alignas(16) float o[CombineConfig::kWarps][kCfg.head_dim_v];
  float most[CombineConfig::kWarps], sum[CombineConfig::kWarps];
  FA3_NAMED(o, most, sum)
};

// The rows of a unit that several CTAs share.
template <CombineConfig kCfg>
struct Combiner {
  static constexpr u32 kWarps = CombineConfig::kWarps;
  using Row = CombineRow<kCfg>;

  CombineSmem<kCfg>& smem;
  const CombineArgs& args;
  const DecodeUnit& unit;
  u32 first, stride, count;

  FA3_DEV bool exists(u32 row) const {
    return row < kCfg.rows && packed_row(args.shape, unit, row).query < unit.q.rows;
  }
  // A warp has a row where parts are few, else all warps of the CTA.
  FA3_DEV void run() const {
    const u32 warps = count <= Row::kUnroll ? 1 : kWarps, warp = ptx::warp_index();
    const u32 rows = kWarps / warps;
    FA3_NO_UNROLL
    for (u32 row = ptx::block_index_y() * rows + warp / warps; exists(row);
         row += ptx::grid_dim_y() * rows) {
      Four o[Row::kFours] = {};
      float most = -kInf, sum = 0;
      Row{args.parts, first, stride, count, row, warp % warps, warps}.add(o, most, sum);
      if (warps > 1) gather(o, most, sum);
      if (warp % warps == 0) store(row, o, most, sum);
    }
  }

 private:
  // For warp 0 what all warps have.
  FA3_DEV void gather(Four (&o)[Row::kFours], float& most, float& sum) const {
    const u32 warp = ptx::warp_index();
    ptx::cta_sync();  // the sums of the row before have been read
    FA3_UNROLL
    for (int c = 0; c < Row::kFours; ++c)
      if (Row::column(c) < kCfg.head_dim_v) ptx::st_shared(four(warp, c), o[c]);
    if (ptx::lane_index() == 0)
      ptx::st_shared(&smem.most[warp], most), ptx::st_shared(&smem.sum[warp], sum);
    ptx::cta_sync();
    if (warp != 0) return;
    float scale[kWarps];
    most = -kInf, sum = 0;
    FA3_UNROLL
    for (u32 w = 0; w < kWarps; ++w)
      scale[w] = ptx::ld_shared(&smem.most[w]), most = ptx::max_nan(most, scale[w]);
    FA3_UNROLL
    for (int c = 0; c < Row::kFours; ++c) o[c] = Four{{0, 0, 0, 0}};
    FA3_UNROLL
    for (u32 w = 0; w < kWarps; ++w) {
      scale[w] = merge_weight(scale[w], most);
      sum = ptx::fma(scale[w], ptx::ld_shared(&smem.sum[w]), sum);
      FA3_UNROLL
      for (int c = 0; c < Row::kFours; ++c) {
        if (Row::column(c) >= kCfg.head_dim_v) continue;
        const Four x = ptx::ld_shared(four(w, c));
        FA3_UNROLL
        for (int n = 0; n < 4; ++n) o[c][n] = ptx::fma(scale[w], x[n], o[c][n]);
      }
    }
  }
  FA3_DEV Four* four(u32 warp, int c) const {
    return reinterpret_cast<Four*>(&smem.o[warp][Row::column(c)]);
  }
  FA3_DEV void store(u32 row, Four (&o)[Row::kFours], float most, float sum) const {
    store_row<kCfg>(args, unit, row, o, sum, MergedSum{most});
  }
};

template <CombineConfig kCfg>
FA3_KERNEL(CombineConfig::kThreads)
void combine(FA3_GRID_CONSTANT const CombineArgs args) {
  ptx::pdl_launch();
  if constexpr (kCfg.part_tiles > 0) return fold_parts<kCfg>(args);
  auto& smem = ptx::smem_as<CombineSmem<kCfg>>();
  if (args.waits) ptx::pdl_wait();
  DecodeUnits<kCfg> units(args.shape);
  const u32 index = ptx::block_index_x();
  DecodeUnit unit{};
  u32 first = 0, count = 0;
  if (units.ctas() > 0 && !units.whole() && (args.row_tiles > 0 || index < units.ctas())) {
    unit = args.row_tiles > 0
               ? units.of(ptx::block_index_z(), static_cast<i32>(index / args.row_tiles),
                          index % args.row_tiles)
               : units.at(units.share(index).end - 1);
    if (unit.length > 0) {
      first = units.cta_of(unit.begin);
      count = (units.cta_of(unit.end() - 1) - first) / units.stride() + 1;
    }
    if (args.row_tiles == 0 && first != index) count = 0;  // the unit is another CTA's
  }
  ptx::pdl_wait();  // also where nothing is to be done: the next grid relies on it
  if (count < 2) return;
  Combiner<kCfg>{smem, args, unit, first, units.stride(), count}.run();
}

}  // namespace fa3::sm90
