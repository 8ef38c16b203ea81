// SPDX-License-Identifier: BSD-3-Clause
// combine.cuh — merges the parts of decode tiles that several CTAs have computed:
//   LSE = ln Σ exp(LSEᵢ),   O = Σ exp(LSEᵢ − LSE)·Oᵢ,   parts in the order of their keys.
// CONTRACT  parts as decode() leaves them for the same shape.
// GRID      x: CTAs of decode(), each for the unit that begins in its share and does not end
//           there · y: packed rows, one a warp
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/sm90/decode/config.h"
#include "device/sm90/decode/store.h"
#include "device/sm90/decode/units.h"

namespace fa3::sm90 {

// Whether a row sees any key; else O = 0.
FA3_DEV bool sees_any(const DecodeShape& shape, const DecodeUnit& unit, i32 query) {
  return query < unit.q.used &&
         !keys_of_row(shape.band, unit.q.used, unit.kv.used, query).empty();
}

// One row by one warp: lanes have its columns, 4 neighbours each, every 128th four.
template <CombineConfig kCfg>
struct CombineRow {
  static constexpr int kFours = static_cast<int>(div_up(kCfg.head_dim_v, 128));
  static constexpr u32 kUnroll = 8;  // parts in flight
  using Four = ptx::Vec<float, 4>;

  const DecodeParts& parts;
  u32 first;  // CTA of the first part
  u32 count;
  u32 row;  // of the tile

  FA3_DEV u32 place(u32 part) const {
    return part_slot(first + part, part == 0) * static_cast<u32>(kCfg.rows) + row;
  }
  FA3_DEV float lse_of(u32 part) const {
    return part < count ? ptx::ld_global(parts.lse + place(part)) : -kInf;
  }
  // LSE of all; o: the lane's columns.
  FA3_DEV float run(Four (&o)[kFours]) const {
    const u32 lane = ptx::lane_index();
    float most = -kInf;
    for (u32 part = lane; part < count; part += 32) most = ptx::max_nan(most, lse_of(part));
    FA3_UNROLL
    for (u32 m = 1; m < 32; m *= 2) most = ptx::max_nan(most, ptx::shfl_xor(most, m));
    const float ref = most == -kInf ? 0.f : most;
    FA3_UNROLL
    for (int c = 0; c < kFours; ++c) o[c] = Four{{0, 0, 0, 0}};
    float sum = 0;
    FA3_NO_UNROLL
    for (u32 begin = 0; begin < count; begin += 32) {
      const float mine = ptx::ex2((lse_of(begin + lane) - ref) * kLog2e);
      const u32 end = min(count - begin, 32u);
      FA3_NO_UNROLL
      for (u32 i = 0; i < end; i += kUnroll) add(o, sum, begin, i, mine);
    }
    const float inverse = ptx::rcp(sum);
    FA3_UNROLL
    for (int c = 0; c < kFours; ++c) {
      FA3_UNROLL
      for (int n = 0; n < 4; ++n) o[c][n] *= inverse;
    }
    return ptx::fma(ptx::lg2(sum), kLn2, ref);
  }

 private:
  // Parts [begin + i, begin + i + kUnroll), those that there are.
  FA3_DEV void add(Four (&o)[kFours], float& sum, u32 begin, u32 i, float mine) const {
    const u32 lane = ptx::lane_index();
    Four x[kUnroll][kFours];
    FA3_UNROLL
    for (u32 u = 0; u < kUnroll; ++u) {
      const u32 part = min(begin + i + u, count - 1);
      FA3_UNROLL
      for (int c = 0; c < kFours; ++c) {
        const i32 column = 128 * c + 4 * static_cast<i32>(lane);
        x[u][c] = Four{{0, 0, 0, 0}};
        if (column < kCfg.head_dim_v)
          x[u][c] = ptx::ld_global(reinterpret_cast<const Four*>(
              parts.o + u64{place(part)} * kCfg.head_dim_v + static_cast<u32>(column)));
      }
    }
    FA3_UNROLL
    for (u32 u = 0; u < kUnroll; ++u) {
      const float weight = ptx::shfl_idx(mine, (i + u) % 32);
      if (begin + i + u >= count) continue;
      sum += weight;
      FA3_UNROLL
      for (int c = 0; c < kFours; ++c) {
        FA3_UNROLL
        for (int n = 0; n < 4; ++n) o[c][n] = ptx::fma(weight, x[u][c][n], o[c][n]);
      }
    }
  }
};

template <CombineConfig kCfg>
FA3_KERNEL(CombineConfig::kThreads)
void combine(FA3_GRID_CONSTANT const CombineArgs args) {
  ptx::pdl_launch();
  DecodeUnits<kCfg> units(args.shape);
  const u32 cta = ptx::block_index_x();
  const u32 row = ptx::block_index_y() * CombineConfig::kWarps + ptx::warp_index();
  bool shared = cta < units.ctas();
  DecodeUnit unit{};
  if (shared) {
    const u32 begin = units.share(cta), end = units.share(cta + 1);
    unit = units.at(end - 1);
    shared = unit.begin >= begin && unit.end() > end;
  }
  ptx::pdl_wait();  // also where nothing is to be done: the next grid relies on it
  const i32 packed = unit.row + static_cast<i32>(row);
  const i32 query = packed / args.shape.group_size;
  if (!shared || row >= kCfg.rows || query >= unit.q.rows) return;
  const u32 count = units.cta_of(unit.end() - 1) - cta + 1;
  using Row = CombineRow<kCfg>;
  typename Row::Four o[Row::kFours];
  const float lse = Row{args.parts, cta, count, row}.run(o);
  const bool nothing = !sees_any(args.shape, unit, query);
  const i32 head = unit.kv_head * args.shape.group_size + packed % args.shape.group_size;
  const RowPlace to = place_of(args.out, args.shape, unit, query, head);
  FA3_UNROLL
  for (int c = 0; c < Row::kFours; ++c) {
    FA3_UNROLL
    for (int n = 0; n < 4; ++n) {
      const i32 at = 128 * c + 4 * static_cast<i32>(ptx::lane_index()) + n;
      if (at < args.out.head_dim_v)
        store_o<kCfg.dtype, kCfg.o_f32>(args.out, to, at, nothing ? 0.f : o[c][n]);
    }
  }
  if (ptx::lane_index() == 0) store_lse(args.out, to, nothing ? -kInf : lse);
}

}  // namespace fa3::sm90
