// SPDX-License-Identifier: BSD-3-Clause
// dq.cuh — behind the backward's main kernel: dQ from its sums, which lie in the order of
// registers.
// CONTRACT  every row of the tensor is written, 0 where it does not count. cu_seqlens and seqused
//           may hold anything.
// GRID      x: Q tiles of the longest sequence · y: query heads · z: sequences, and with cu_seqlens
//           one more, the rows of none
// BARRIERS  full: 1 arrival, a tile's sums; all threads wait
#pragma once

#include "device/hopper/barrier.h"
#include "device/ptx/bulk.h"
#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/sm90/bwd/fixed.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/work.h"
#include "device/sm90/common/begin_cta.h"
#include "device/warp/fragment.h"
#include "device/warp/transpose.h"

namespace fa3::sm90 {

// Where the first of four sums lies that follow one another from element 4·i of a tile on: its two
// neighbours in a row, and those 8 rows below.
template <BwdConfig kCfg>
FA3_HD constexpr Place dq_place(u32 i) {
  constexpr u32 kColumns = static_cast<u32>(kCfg.dq_columns()), kPart = kWgRows * kColumns / 4;
  const u32 part = i / kPart, group = i % kPart / kWgThreads, thread = i % kWgThreads;
  const Place own{fragment_row(thread), 8 * group + fragment_column(thread)};
  if (kCfg.dq_by_rows()) return {own.row + kWgRows * part, own.column};
  return {own.row, own.column + kColumns * part};
}

// ±∞ or NaN where dQ writers noted it: in two of the four sums from element 4·i on, the first of
// which is `first`.
template <BwdConfig kCfg>
FA3_DEV void put_flagged(const u32* flags, u32 i, int first, float (&two)[2]) {
  const DqFlag flag = DqFlag::of<kCfg>(i / kWgThreads, i % kWgThreads);
  const u32* const words = flags + flag.word;
  const u32 bit = flag.bit + static_cast<u32>(first);
  const u32 up = ptx::ld_global(words) >> bit, down = ptx::ld_global(words + kWgThreads) >> bit;
  FA3_UNROLL
  for (int k = 0; k < 2; ++k) {
    if ((up >> k & 1) != 0) two[k] = kInf;
    if ((down >> k & 1) != 0) two[k] = (up >> k & 1) != 0 ? kInf - kInf : -kInf;
  }
}

// Four groups of 8 columns of a row from `column` on, of each of which a lane of four has two
// neighbours: FP32 as they are, 16 bits a group a lane. All lanes of a warp.
template <MmaType kType>
FA3_DEV void store_groups(const BwdTensor& to, i64 row, u32 column, u32 quad,
                          const float (&two)[4][2], i32 columns) {
  if (to.f32) {
    FA3_UNROLL
    for (u32 g = 0; g < 4; ++g) {
      const u32 at = column + 8 * g + 2 * quad;
      if (static_cast<i32>(at) < columns) store_two<kType>(to, row + at, two[g][0], two[g][1]);
    }
    return;
  }
  u32 words[4];
  FA3_UNROLL
  for (u32 g = 0; g < 4; ++g) words[g] = pack16<kType>(two[g][0], two[g][1]);
  transpose_fours<1>(words);
  const u32 at = column + 8 * quad;
  if (static_cast<i32>(at) >= columns) return;
  ptx::st_global(reinterpret_cast<ptx::Vec<u32, 4>*>(static_cast<u16*>(to.data) + row + at),
                 ptx::Vec<u32, 4>{{words[0], words[1], words[2], words[3]}});
}

// A tile's sums come in one bulk copy, so that those of all CTAs of an SM are on their way at once.
template <BwdConfig kCfg>
struct DqSmem {
  alignas(128) ptx::Vec<u32, 4> sums[kCfg.dq_sums() / 4];
  Barrier full;
  FA3_NAMED(sums, full)

  FA3_DEV void init_barriers() { full.init(1); }
};

template <BwdConfig kCfg>
FA3_KERNEL(kBwdRowThreads)
void bwd_dq(FA3_GRID_CONSTANT const BwdDqArgs args) {
  auto& smem = begin_cta<DqSmem<kCfg>, kCfg.dq_smem_bytes()>();
  const BwdQTile work = BwdQTile::of_cta<kCfg>(args.q_axis, args.batch);
  const SequenceRows& rows = work.rows;
  const i32 tile = work.tile, head = work.head, b = work.batch;
  using Four = ptx::Vec<u32, 4>;
  // Rows of no sequence have no tiles.
  const i64 at = b < args.batch ? args.tiles.first(b, head, rows.begin, kCfg.tile_q) + tile : 0;
  [[maybe_unused]] const float* const scales =
      args.stats + at * kCfg.row_floats() + kCfg.scales_at();
  [[maybe_unused]] const u32* const flags = args.dq_flag + at * kCfg.dq_flags();
  [[maybe_unused]] u32 added = 0;  // words, to each sum
  if (kCfg.tile_q * tile < rows.used) {
    if constexpr (kCfg.deterministic) added = ptx::ld_global(flags + kCfg.dq_count_at());
    if (ptx::thread_index() == 0) {
      smem.full.arrive_expect_tx(sizeof smem.sums);
      ptx::bulk_load(ptx::smem_address(smem.sums), args.dq_sum + at * kCfg.dq_sums(),
                     sizeof smem.sums, smem.full.address());
    }
    smem.full.wait(0);
  }
  const u32 quad = ptx::lane_index() % 4;
  const i32 step = static_cast<i32>(ptx::grid_dim_x()) * kCfg.tile_q;
  for (i32 first = kCfg.tile_q * tile; first < rows.rows; first += step) {
    // A thread takes four groups of 8 columns in two rows: two neighbours of each.
    FA3_NO_UNROLL
    for (u32 unit = ptx::thread_index(); unit < static_cast<u32>(kCfg.dq_sums() / 16);
         unit += kBwdRowThreads) {
      const u32 i = unit / kWgThreads * (4 * kWgThreads) + unit % kWgThreads;
      const Place place = dq_place<kCfg>(i);
      Four four[4];
      FA3_UNROLL
      for (u32 g = 0; g < 4; ++g)
        four[g] = first < rows.used ? ptx::ld_shared(smem.sums + i + kWgThreads * g) : Four{};
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        const i32 row = first + static_cast<i32>(place.row) + 8 * h;
        const bool counts = row < rows.used;
        float two[4][2];
        FA3_UNROLL
        for (u32 g = 0; g < 4; ++g) {
          FA3_UNROLL
          for (int k = 0; k < 2; ++k) two[g][k] = ptx::bits_as<float>(four[g][2 * h + k]);
        }
        if constexpr (kCfg.deterministic) {
          const float scale =
              counts ? ptx::ld_global(scales + stats_place(static_cast<i32>(place.row) + 8 * h))
                     : 1.f;
          FA3_UNROLL
          for (u32 g = 0; g < 4; ++g) {
            FA3_UNROLL
            for (int k = 0; k < 2; ++k)
              two[g][k] = from_fixed(four[g][2 * h + k], added, fixed_unit(scale));
            if (scale < 0) put_flagged<kCfg>(flags, i + kWgThreads * g, 2 * h, two[g]);
          }
        }
        FA3_UNROLL
        for (u32 g = 0; g < 4; ++g) {
          FA3_UNROLL
          for (int k = 0; k < 2; ++k) two[g][k] = counts ? two[g][k] * args.scale : 0.f;
        }
        const i64 to = b * args.dq.batch + (i64{first_row(args.q_axis, rows)} + row) * args.dq.row +
                       head * args.dq.head;
        store_groups<kCfg.dtype>(args.dq, to, place.column - 2 * quad, quad, two,
                                 row < rows.rows ? args.head_dim_qk : 0);
      }
    }
  }
}

}  // namespace fa3::sm90
