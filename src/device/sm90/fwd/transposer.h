// SPDX-License-Identifier: BSD-3-Clause
// transposer.h — 8-bit V comes as [key][column], but wgmma takes 8-bit operands only with the keys
// of a column side by side: two warps beside the producer turn each tile on its way to the
// consumers (hopper/transpose8.h). For long sequences a kernel of its own does it once for all Q
// tiles (v_image.cuh).
#pragma once

#include "device/hopper/ring.h"
#include "device/hopper/transpose8.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/fwd/smem.h"

namespace fa3::sm90 {

// Transposes tiles from one place in shared memory to another; a warp's share of the keys.
// kInFlight: blocks between load and store, to hide the latency.
template <TurnedTile kTile, u32 kInFlight>
struct TileTurner {
  static constexpr TileLayout kRaw{kTile.keys, kTile.columns, 1};
  static constexpr u32 kWidth = static_cast<u32>(kRaw.panel_width());         // columns
  static constexpr u32 kTurnedWidth = static_cast<u32>(kTile.panel_width());  // keys
  static constexpr u32 kKeys = kTile.keys, kColumns = kTile.columns;
  static constexpr u32 kBlockKeys = 16, kBlockColumns = 32;
  static_assert(kColumns % (kInFlight * kBlockColumns) == 0);

  // Of this lane in the first block. In a swizzled panel, rows 8 further on are at a larger address
  // by as much as without a swizzle, and another chunk of 16 bytes is an exclusive or.
  u32 source = panel_offset(transpose8_source(ptx::lane_index()).row,
                            transpose8_source(ptx::lane_index()).column, kRaw.swizzle());
  u32 target = panel_offset(transpose8_target(ptx::lane_index()), 0, kTile.swizzle());

  FA3_DEV void turn(const u8* raw, u8* turned, u32 warp, u32 warps) const {
    FA3_NO_UNROLL
    for (u32 key = kBlockKeys * warp; key < kKeys; key += kBlockKeys * warps) {
      const u8* const load = raw + key * kWidth;
      u8* const store =
          turned + key / kTurnedWidth * kTile.panel_bytes() + (target ^ key % kTurnedWidth);
      FA3_NO_UNROLL
      for (u32 column = 0; column < kColumns; column += kInFlight * kBlockColumns) {
        ptx::Vec<u32, 4> block[kInFlight];
        FA3_UNROLL
        for (u32 i = 0; i < kInFlight; ++i) {
          const u32 at = column + i * kBlockColumns;
          block[i] = ptx::ldmatrix_x4_trans(load + at / kWidth * kRaw.panel_bytes() +
                                            (source ^ at % kWidth));
        }
        FA3_UNROLL
        for (u32 i = 0; i < kInFlight; ++i) {
          const u32 at = column + i * kBlockColumns;
          ptx::stmatrix_x4(store + at * kTurnedWidth, transpose8_step(block[i]));
        }
      }
    }
  }
};

// At most `most` of a tile's blocks of 32 columns at a time, so that all are taken.
constexpr u32 blocks_in_flight(u32 columns, u32 most) {
  while (columns / 32 % most != 0) --most;
  return most;
}

template <FwdConfig kCfg>
struct Transposer {
  // The producer has few registers.
  static constexpr u32 kRegisters = kCfg.producer_registers();
  static constexpr bool kWide = kCfg.tile.head_dim_v > 192;  // addresses take registers, too
  static constexpr u32 kMost = kRegisters < 32 ? 1 : kRegisters < 40 || kWide ? 2 : 4;
  static constexpr u32 kInFlight = blocks_in_flight(kCfg.tile.head_dim_v, kMost);

  FwdSmem<kCfg>& smem;
  u32 warp;  // among the transposers
  Ring<kCfg.load.raw_v_stages> from{};
  Ring<kCfg.tile.stages> to = Ring<kCfg.tile.stages>::producer();
  TileTurner<kCfg.turned_v(), kInFlight> turner{};

  FA3_DEV void tile() {
    smem.raw_v_full[from.stage].wait(from.phase);
    smem.v_empty[to.stage].wait(to.phase);
    turner.turn(smem.side[from.stage], smem.v[to.stage], warp, kTransposers);
    // One fence for both: stores before wgmma reads them, loads before TMA overwrites them.
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    const bool leader = ptx::lane_index() == 0;
    smem.v_full[to.stage].arrive_if(leader);
    smem.raw_v_empty[from.stage].arrive_if(leader);
    from.advance();
    to.advance();
  }
};

// Run by a whole warp.
template <FwdConfig kCfg>
FA3_DEV void transpose(FwdSmem<kCfg>& smem, u32 warp) {
  Transposer<kCfg> transposer{smem, warp};
  Ring<FwdConfig::kWorkSlots> slot;
  FA3_NO_UNROLL
  for (;; slot.advance()) {
    smem.work_full[slot.stage].wait(slot.phase);
    const FwdSharedWork& work = smem.work[slot.stage];
    if (!work.is_tile()) return;
    const TileRange range = work.read().range;
    ptx::warp_sync();  // all lanes have read  sim:spare(work_read)
    smem.work_empty[slot.stage].arrive_if(ptx::lane_index() == 0);
    FA3_NO_UNROLL
    for (i32 tile = range.first; tile < range.end; ++tile) transposer.tile();
  }
}

}  // namespace fa3::sm90
