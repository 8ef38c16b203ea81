// SPDX-License-Identifier: BSD-3-Clause
// rotated_producers.h — the warps that bring tiles of rotated rows. Tables are made once for all
// heads of a tile, each tile's by one warp, so that as many tiles' loads are under way: with signs,
// 1/√hadamard and, where partners of a pair are partners in the transform, too, the sum and the
// difference of cosine and sine.
#pragma once

#include "device/ptx/async_copy.h"
#include "device/ptx/tma.h"
#include "device/sm90/quantize/rotated_tiles.h"

namespace fa3::sm90 {

// A warp that makes the tables of every kTableWarps-th tile, in the stage of its own, and says what
// the tile is.
template <RotatedConfig kCfg>
class TableProducer {
 public:
  FA3_DEV TableProducer(const QuantizeArgs& args, RotatedSmem<kCfg>& smem, u32 warp)
      : args_(args),
        smem_(smem),
        stage_(warp),
        lane_(static_cast<i32>(ptx::lane_index())),
        tiles_(args) {}

  FA3_DEV void run() {
    const Signs signs = signs_of_piece();
    const u32 before = stage_ == 0 ? kCfg.kStages - 1 : stage_ - 1;
    u32 phase = 0;
    FA3_NO_UNROLL
    for (bool first = stage_ == 0;; first = false, phase ^= 1) {
      // Warps ask one after another, so that behind a tile that is none there is no other.
      smem_.tile_known[before].wait(stage_ == 0 ? phase ^ 1 : phase);
      const RotatedTile tile =
          tiles_.find(first ? static_cast<i32>(ptx::block_index_x()) : behind(before));
      smem_.tile_empty[stage_].wait(phase ^ 1);
      if (lane_ == 0) {
        ptx::st_shared(&smem_.rows[stage_], tile.rows);
        ptx::st_shared(&smem_.source[stage_], tile.source);
        smem_.tile_known[stage_].arrive();
      }
      if (tile.rows.counts()) load(tile);
      if (lane_ == 0 && tile.rows.heads > 0)
        ptx::st_shared(&smem_.target[stage_], tiles_.target_of(tile));
      if (tile.rows.counts()) make(signs);
      smem_.tile_full[stage_].arrive();
      if (tile.rows.heads == 0) return;
    }
  }

 private:
  static constexpr TurnConfig kTurn = kCfg.codes.turn;
  static constexpr i32 kOfRow = kTurn.rotary_dim / 2 / kCfg.piece();  // pieces
  static constexpr i32 kStep = 32 / kOfRow;                           // rows at a time
  static_assert(kStep > 0 && kCfg.kStages == kCfg.kTableWarps);
  static constexpr bool kOf16Bits = kCfg.piece() == 8;
  // Of the lane's numbers: 1/√hadamard with the sign of a pair, or of two pairs in 16 bits each the
  // signs alone.
  using Signs = ptx::Vec<u32, 4>;

  // The number to look at after the tile of a stage. All lanes.
  FA3_DEV i32 behind(u32 stage) const {
    i32 next = 0;
    if (lane_ == 0)
      next = args_.taken == nullptr ? ptx::ld_shared(&smem_.source[stage].tile)
                                    : static_cast<i32>(ptx::atom_add_u32(args_.taken, 1));
    return ptx::shfl_idx(next, 0) + static_cast<i32>(ptx::grid_dim_x());
  }

  // What is loaded lies where the lane will write: all loads are under way at a time, and take
  // neither registers nor room.
  FA3_DEV void load(const RotatedTile& tile) const {
    const i64 last = args_.positions - 1;
    const i64 begin = first_position(args_, tile.source.sequence) + tile.first;
    // As position_of, for up to kCfg.rows() rows from here on.
    const auto from = static_cast<i32>(min(max(begin, i64{-kCfg.rows()}), last));
    const auto most = static_cast<u32>(last - from);
    const u8* const cosine = static_cast<const u8*>(args_.cosine.data) + 16 * piece();
    const u8* const sine = static_cast<const u8*>(args_.sine.data) + 16 * piece();
    const i64 cosine_row = args_.cosine.row * size_of(kTurn.table);
    const i64 sine_row = args_.sine.row * size_of(kTurn.table);
    each_row<kOf16Bits ? 2 : 4>([&](i32 r) {
      const i64 t = max(from + static_cast<i32>(min(static_cast<u32>(r), most)), 0);
      ptx::cp_async_16(ptx::smem_address(place(0, r)), cosine + t * cosine_row);
      ptx::cp_async_16(ptx::smem_address(place(1, r)), sine + t * sine_row);
    });
  }

  FA3_DEV void make(const Signs& signs) const {
    ptx::cp_async_wait_all();
    each_row<1>([&](i32 r) {
      float cos[kCfg.piece()], sin[kCfg.piece()];
      if constexpr (kOf16Bits) {
        load_piece<kTurn.table>(place(0, r), 0, cos, signs, FromShared{});
        load_piece<kTurn.table>(place(1, r), 0, sin, signs, FromShared{});
      } else {
        load_half<kTurn.table>(place(0, r), 0, cos, FromShared{});
        load_half<kTurn.table>(place(1, r), 0, sin, FromShared{});
      }
      FA3_UNROLL
      for (int i = 0; i < kCfg.piece(); i += 4) store(r, i, cos + i, sin + i, signs);
    });
  }

  // The lane's first row, and its piece of it and of each kStep-th one behind.
  FA3_DEV i32 row() const { return lane_ / kOfRow; }
  FA3_DEV i32 piece() const { return lane_ % kOfRow; }

  // work(r) for each row r of the lane, kUnroll at a time.
  template <int kUnroll, class Work>
  FA3_DEV void each_row(const Work& work) const {
    if (32 % kOfRow != 0 && lane_ >= kStep * kOfRow) return;
    FA3_NO_UNROLL
    for (i32 first = row(); first < kCfg.rows(); first += kUnroll * kStep) {
      FA3_UNROLL
      for (int i = 0; i < kUnroll; ++i)
        if (i == 0 || first + i * kStep < kCfg.rows()) work(first + i * kStep);
    }
  }

  FA3_DEV ptx::Vec<u32, 4>* place(u32 table, i32 row) const {
    return reinterpret_cast<ptx::Vec<u32, 4>*>(
        &smem_.table[stage_][table][row][piece() * kCfg.piece()]);
  }

  // Numbers i to i + 3 of the lane's piece, in place of what was loaded.
  FA3_DEV void store(i32 row, i32 i, const float* cos, const float* sin, const Signs& signs) const {
    ptx::Vec<float, 4> a, b;
    FA3_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float unit = kOf16Bits ? args_.unit : ptx::bits_as<float>(signs[k]);
      a[k] = unit * (kCfg.fused() ? cos[k] + sin[k] : cos[k]);
      b[k] = unit * (kCfg.fused() ? cos[k] - sin[k] : sin[k]);
    }
    const i32 column = piece() * kCfg.piece() + i;
    auto& table = smem_.table[stage_];
    ptx::st_shared(reinterpret_cast<ptx::Vec<float, 4>*>(&table[0][row][column]), a);
    ptx::st_shared(reinterpret_cast<ptx::Vec<float, 4>*>(&table[1][row][column]), b);
  }

  FA3_DEV Signs signs_of_piece() const {
    const auto sign = [&](int i) {
      const i32 pair = piece() * kCfg.piece() + i;
      return u32{ptx::ld_shared(&smem_.sign[kTurn.rotary == RotaryKind::kPairs ? 2 * pair : pair])};
    };
    Signs signs;
    FA3_UNROLL
    for (int i = 0; i < 4; ++i)
      signs[i] = kOf16Bits ? sign(2 * i) | sign(2 * i + 1) << 16
                           : ptx::bits_as<u32>(args_.unit) ^ sign(i) << 16;
    return signs;
  }

  const QuantizeArgs& args_;
  RotatedSmem<kCfg>& smem_;
  const u32 stage_;
  const i32 lane_;
  TileFinder<kCfg> tiles_;
};

// The thread that brings x.
template <RotatedConfig kCfg>
FA3_DEV void load_rotated(const QuantizeArgs& args, RotatedSmem<kCfg>& smem) {
  constexpr TileLayout kX = kCfg.x_tile();
  u32 consumer = 0, phase = 1;  // of the next part
  FA3_NO_UNROLL
  for (Ring<kCfg.kStages> ring;; ring.advance()) {
    smem.tile_known[ring.stage].wait(ring.phase);
    const TileRows rows = ptx::ld_shared(&smem.rows[ring.stage]);
    const RotatedSource source = ptx::ld_shared(&smem.source[ring.stage]);
    if (rows.heads == 0) return;
    smem.tile_empty[ring.stage].arrive();
    const i32 batch = args.axis.cu_seqlens == nullptr ? source.sequence : 0;
    FA3_NO_UNROLL
    for (i32 i = 0; i < kCfg.row_blocks * rows.heads; ++i) {
      const TilePart part = part_of<kCfg>(rows.heads, i);
      const i32 row = source.row + part.row, head = source.head + part.head;
      Barrier& full = smem.x_full[consumer];
      smem.x_empty[consumer].wait(phase);
      if (!rows.counts()) {
        full.arrive();
      } else {
        full.arrive_expect_tx(static_cast<u32>(kX.bytes()));
        const u32 to = ptx::smem_address(smem.x[consumer]);
        if constexpr (kCfg.one_box()) {
          ptx::tma_load_5d(to, args.x_map, full.address(), 0, row, 0, head, batch);
        } else {
          FA3_UNROLL
          for (i32 panel = 0; panel < kX.panels(); ++panel)
            ptx::tma_load_4d(to + static_cast<u32>(panel * kX.panel_bytes()), args.x_map,
                             full.address(), kX.panel_columns() * panel, row, head, batch);
        }
      }
      if (++consumer == kCfg.consumers()) consumer = 0, phase ^= 1;
    }
  }
}

}  // namespace fa3::sm90
