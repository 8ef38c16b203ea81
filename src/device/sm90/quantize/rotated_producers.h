// SPDX-License-Identifier: BSD-3-Clause
// rotated_producers.h — the warps that bring tiles of rotated rows. Tables are made once for all
// heads of a tile: with signs, 1/√hadamard and, where partners of a pair are partners in the
// transform, too, the sum and the difference of cosine and sine.
#pragma once

#include "device/ptx/async_copy.h"
#include "device/ptx/tma.h"
#include "device/sm90/quantize/rotated.h"

namespace fa3::sm90 {

// The warps that make the tables of tiles; the first also says what a tile is.
template <RotatedConfig kCfg>
class TableProducer {
 public:
  FA3_DEV TableProducer(const QuantizeArgs& args, RotatedSmem<kCfg>& smem, u32 warp)
      : args_(args), smem_(smem), thread_(static_cast<i32>(32 * warp + ptx::lane_index())) {}

  FA3_DEV void run() {
    i32 next = static_cast<i32>(ptx::block_index_x());
    FA3_NO_UNROLL
    for (Ring<kCfg.kStages> ring;; ring.advance()) {
      TileRows rows{};
      TileHeads heads{};
      if (thread_ < 32) {
        next = find(next, rows, heads);
        smem_.tile_empty[ring.stage].wait(ring.phase ^ 1);
        if (thread_ == 0) {
          ptx::st_shared(&smem_.tile[ring.stage], rows);
          ptx::st_shared(&smem_.heads[ring.stage], heads);
          smem_.tile_known[ring.stage].arrive();
        }
      } else {
        smem_.tile_known[ring.stage].wait(ring.phase);
        rows = ptx::ld_shared(&smem_.tile[ring.stage]);
        heads = ptx::ld_shared(&smem_.heads[ring.stage]);
      }
      if (rows.counts()) make(ring.stage, rows, heads);
      smem_.tile_full[ring.stage].arrive();
      if (heads.heads == 0) return;
    }
  }

 private:
  static constexpr TurnConfig kTurn = kCfg.codes.turn;
  static constexpr i32 kThreads = 32 * kCfg.kTableWarps;
  static constexpr i32 kOfRow = kTurn.rotary_dim / 2 / kCfg.piece(), kAll = kCfg.rows() * kOfRow;

  // The first tile from i on that has something to do, if there is one; returns that behind it.
  // All lanes of a warp.
  FA3_DEV i32 find(i32 i, TileRows& rows, TileHeads& heads) const {
    const RotatedGrid& grid = args_.rotated;
    FA3_NO_UNROLL
    while (i < grid.tiles) {
      const i32 part = i / grid.groups, head = i % grid.groups * grid.heads;
      const i32 b = part / grid.parts;
      const SequenceRows of = rows_of_warp<true>(args_.axis, args_.batch, b);
      rows = {of.begin, of.rows, of.used, part % grid.parts * kCfg.rows()};
      // Rows that have a scale, or are of the tensor.
      if (rows.first < max(of.rows, b < args_.batch ? args_.most_rows : 0)) {
        heads = {b, head, min(args_.heads - head, grid.heads)};
        return after(i);
      }
      // Nor have the sequence's parts behind that one.
      const i32 end = (b + 1) * grid.parts * grid.groups;
      FA3_NO_UNROLL
      do i += static_cast<i32>(ptx::grid_dim_x());
      while (i < end);
    }
    rows = {};
    return i;
  }

  FA3_DEV i32 after(i32 i) const {
    const u32 ctas = ptx::grid_dim_x();
    if (args_.taken == nullptr) return i + static_cast<i32>(ctas);
    u32 taken = 0;
    if (thread_ == 0) taken = ptx::atom_add_u32(args_.taken, 1);
    return static_cast<i32>(ctas + ptx::shfl_idx(taken, 0));
  }

  // By way of shared memory, where each thread has places of its own: all loads are under way at a
  // time, and take no registers.
  FA3_DEV void make(u32 stage, const TileRows& rows, const TileHeads& heads) const {
    const i64 start = first_position(args_, heads.b);
    FA3_NO_UNROLL
    for (i32 k = 0; k < kCfg.pieces_of_thread(); ++k) {
      const i32 at = thread_ + k * kThreads;
      if (at >= kAll) break;
      const i64 t = position_of(args_, start, rows.first + at / kOfRow);
      load(args_.cosine, t, at % kOfRow, &smem_.raw[0][k][thread_]);
      load(args_.sine, t, at % kOfRow, &smem_.raw[1][k][thread_]);
    }
    ptx::cp_async_wait_all();
    FA3_NO_UNROLL
    for (i32 k = 0; k < kCfg.pieces_of_thread(); ++k) {
      const i32 at = thread_ + k * kThreads;
      if (at >= kAll) break;
      FA3_UNROLL
      for (int i = 0; i < kCfg.piece(); i += 4) {
        float cos[4], sin[4];
        load_half<kTurn.table>(&smem_.raw[0][k][thread_], i, cos, FromShared{});
        load_half<kTurn.table>(&smem_.raw[1][k][thread_], i, sin, FromShared{});
        store(stage, at / kOfRow, at % kOfRow * kCfg.piece() + i, cos, sin);
      }
    }
  }

  FA3_DEV static void load(const Strided<const void>& table, i64 t, i32 piece,
                           const ptx::Vec<u32, 4>* to) {
    const u8* const from = static_cast<const u8*>(table.data);
    ptx::cp_async_16(ptx::smem_address(to),
                     from + t * table.row * size_of(kTurn.table) + 16 * piece);
  }

  FA3_DEV void store(u32 stage, i32 row, i32 column, const float* cos, const float* sin) const {
    ptx::Vec<float, 4> a, b;
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float unit = unit_of(column + i);
      a[i] = unit * (kCfg.fused() ? cos[i] + sin[i] : cos[i]);
      b[i] = unit * (kCfg.fused() ? cos[i] - sin[i] : sin[i]);
    }
    ptx::st_shared(reinterpret_cast<ptx::Vec<float, 4>*>(&smem_.table[stage][0][row][column]), a);
    ptx::st_shared(reinterpret_cast<ptx::Vec<float, 4>*>(&smem_.table[stage][1][row][column]), b);
  }

  // 1/√hadamard with the sign of a pair.
  FA3_DEV float unit_of(i32 pair) const {
    const i32 column = kTurn.rotary == RotaryKind::kPairs ? 2 * pair : pair;
    const u32 sign = ptx::ld_shared(&smem_.sign[column]);
    return ptx::bits_as<float>(ptx::bits_as<u32>(args_.unit) ^ sign << 16);
  }

  const QuantizeArgs& args_;
  RotatedSmem<kCfg>& smem_;
  const i32 thread_;
};

// The thread that brings x.
template <RotatedConfig kCfg>
FA3_DEV void load_rotated(const QuantizeArgs& args, RotatedSmem<kCfg>& smem) {
  constexpr TileLayout kX = kCfg.x_tile();
  u32 consumer = 0, phase = 1;  // of the next head
  FA3_NO_UNROLL
  for (Ring<kCfg.kStages> ring;; ring.advance()) {
    smem.tile_known[ring.stage].wait(ring.phase);
    const TileRows rows = ptx::ld_shared(&smem.tile[ring.stage]);
    const TileHeads heads = ptx::ld_shared(&smem.heads[ring.stage]);
    if (heads.heads == 0) return;
    smem.tile_empty[ring.stage].arrive();
    const i32 batch = args.axis.cu_seqlens == nullptr ? heads.b : 0;
    FA3_NO_UNROLL
    for (i32 h = 0; h < heads.heads; ++h) {
      Barrier& full = smem.x_full[consumer];
      smem.x_empty[consumer].wait(phase);
      if (rows.counts()) {
        full.arrive_expect_tx(static_cast<u32>(kX.bytes()));
        FA3_UNROLL
        for (i32 panel = 0; panel < kX.panels(); ++panel)
          ptx::tma_load_4d(ptx::smem_address(smem.x[consumer] + panel * kX.panel_bytes()),
                           args.x_map, full.address(), kX.panel_columns() * panel,
                           rows.begin + rows.first, heads.head + h, batch);
      } else {
        full.arrive();
      }
      if (++consumer == kCfg.consumers()) consumer = 0, phase ^= 1;
    }
  }
}

}  // namespace fa3::sm90
