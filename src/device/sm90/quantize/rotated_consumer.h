// SPDX-License-Identifier: BSD-3-Clause
// rotated_consumer.h — a warp that codes rotated rows, one or several lanes a row.
// SYNC      warp_sync before x_empty, which also frees the codes' shared memory; between codes'
//           stores and loads; before tile_empty
#pragma once

#include "device/hopper/swizzle.h"
#include "device/ptx/fence.h"
#include "device/sm90/quantize/rotated.h"

namespace fa3::sm90 {

// A warp that codes every consumers()-th part of all tiles.
template <RotatedConfig kCfg>
class RotatedConsumer {
 public:
  static constexpr QuantizeConfig kCodes = kCfg.codes;
  static constexpr TurnConfig kTurn = kCodes.turn;
  static constexpr int kBlocks = kTurn.col_blocks();
  static constexpr int kValues = kTurn.values();
  static constexpr u32 kRows = kCfg.warp_rows();
  static constexpr TileLayout kX = kCfg.x_tile();
  static constexpr int kRotated = kTurn.rotary_dim / kTurn.lanes();  // values of a lane

  FA3_DEV RotatedConsumer(const QuantizeArgs& args, RotatedSmem<kCfg>& smem, u32 warp)
      : args_(args), smem_(smem), warp_(warp) {}

  FA3_DEV void run() {
    i32 part = static_cast<i32>(warp_);
    FA3_NO_UNROLL
    for (u32 stage = 0;; ++stage) {
      if (stage == kCfg.kStages) stage = 0, phases_ ^= 2;
      smem_.tile_full[stage].wait(phases_ >> 1);
      const i32 heads = ptx::ld_shared(&smem_.rows[stage].heads);
      if (heads == 0) return;
      FA3_NO_UNROLL
      for (; part < kCfg.row_blocks * heads; part += kCfg.consumers()) code(stage, part);
      part -= kCfg.row_blocks * heads;
      ptx::warp_sync();
      if (ptx::lane_index() == 0) smem_.tile_empty[stage].arrive();
    }
  }

 private:
  // Part i of a tile. What it is is found again where it is needed: values take nearly all
  // registers.
  FA3_DEV void code(u32 stage, i32 i) {
    // Asked of the warp each time, so that no addresses are kept in registers from part to part.
    lane_ = ptx::shfl_xor(ptx::lane_index(), 0) % 32;
    row_ = lane_ % kRows;
    smem_.x_full[warp_].wait(phases_ & 1);
    phases_ ^= 1;
    if (!ptx::ld_shared(&smem_.rows[stage]).counts()) {
      free_x();
      return clear(stage, i);
    }
    float y[kValues];
    read_x(y);
    float amax[kBlocks];
    turn(stage, i, y, amax);
    store_row(stage, i, y, amax);
    ptx::warp_sync();
    write(stage, i);
  }

  FA3_DEV void free_x() {
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    if (ptx::lane_index() == 0) smem_.x_empty[warp_].arrive();
  }

  // x of the lane's row, what is not rotated times S/√hadamard.
  FA3_DEV void read_x(float (&y)[kValues]) const {
    const u32 of_row = panel_offset(row_, 0, kX.swizzle());
    FA3_UNROLL
    for (int j = 0; j < kTurn.pieces(); ++j) {
      const bool rotated = 8 * j < kRotated;
      const auto* const signs =
          reinterpret_cast<const ptx::Vec<u32, 4>*>(&smem_.sign[8 * piece_of<kTurn>(j)]);
      load_piece<kTurn.x>(smem_.x[warp_] + x_offset(of_row, j), 0, y + 8 * j,
                          rotated ? ptx::Vec<u32, 4>{} : ptx::ld_shared(signs), FromShared{});
      if (rotated) continue;
      FA3_UNROLL
      for (int v = 8 * j; v < 8 * j + 8; ++v) y[v] *= args_.unit;
    }
  }

  // Where the lane's piece j lies, of a row at of_row. Pieces come in groups of so many bytes of a
  // row, which begin where the compiler knows; in the first of them is what the lane adds.
  FA3_DEV static u32 x_offset(u32 of_row, int j) {
    constexpr u32 kWidth = kX.panel_width(), kPanel = kX.panel_bytes();
    constexpr int kOfGroup = kTurn.exchanges() ? kTurn.lanes() : 1;
    const u32 group = static_cast<u32>(16 * kTurn.lanes() * (j / kOfGroup * kOfGroup));
    const u32 own = static_cast<u32>(16 * piece_of<kTurn>(j % kOfGroup));
    return (of_row ^ own % kWidth ^ group % kWidth) +
           (own / kWidth * kPanel + group / kWidth * kPanel);
  }

  // H·S·R·x, and the maxima of its blocks of columns.
  FA3_DEV void turn(u32 stage, i32 i, float (&y)[kValues], float (&amax)[kBlocks]) {
    constexpr TurnConfig kOfTable = [] {
      TurnConfig turn = kTurn;
      turn.table = FloatType::kF32;
      return turn;
    }();
    const auto& table = smem_.table[stage];
    const u32 row = row_ + static_cast<u32>(part(stage, i).row);
    constexpr int kDone = kCfg.fused() ? kCfg.apart() : 0;
    if constexpr (kCfg.fused()) {
      const auto pair = [](float& a, float& b, float sum, float difference) {
        const float first = a * sum + b * difference;
        b = a * difference - b * sum;
        a = first;
      };
      rotate<kOfTable>(y, table[0][row], 0, table[1][row], 0, FromShared{}, pair);
    } else {
      rotate<kOfTable>(y, table[0][row], 0, table[1][row], 0, FromShared{});
    }
    free_x();
    constexpr int kLast = kDone == 1 ? 2 : 1;  // of the butterflies
    float most;
    if constexpr (kTurn.hadamard > kLast) {
      spread<kTurn, kDone, kLast>(y);
      most = largest_after<kTurn, kLast>(y, amax);
      add_halves(y, kLast);
    } else {
      if constexpr (kTurn.hadamard > 0) spread<kTurn, kDone>(y);
      most = largest<kTurn>(y, amax);
    }
    if (!(most < kInf)) finite_maxima<kTurn>(y, 1, kCodes.to_i8, amax);
  }

  FA3_DEV TilePart part(u32 stage, i32 i) const {
    return part_of<kCfg>(ptx::ld_shared(&smem_.rows[stage].heads), i);
  }

  // The scale of the lane's row, and its codes to shared memory.
  FA3_DEV void store_row(u32 stage, i32 i, const float (&y)[kValues],
                         float (&amax)[kBlocks]) const {
    const i32 row = part(stage, i).row + static_cast<i32>(row_);
    const bool counts = row < ptx::ld_shared(&smem_.rows[stage].used);
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) amax[k] = counts ? amax[k] : 0;
    over_lanes<kTurn>(amax);
    store_scale(stage, i, amax);
    if (counts) {
      pack_row<kCodes>(y, amax, 1, [&](const auto& pack) { store(pack); });
    } else {
      store([](int) { return ptx::Vec<u32, 2>{}; });
    }
  }

  FA3_DEV void store_scale(u32 stage, i32 i, const float (&amax)[kBlocks]) const {
    const TilePart own = part(stage, i);
    const i32 row = own.row + static_cast<i32>(row_);
    if (lane_of<kTurn>() != 0 || row >= ptx::ld_shared(&smem_.rows[stage].scaled)) return;
    float* const to = ptx::ld_shared(&smem_.target[stage].scale) + row * args_.scale.row +
                      own.head * args_.scale.head;
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) ptx::st_global(to + k, scale_of_block(amax[k], kCodes.to_i8));
  }

  // pack(j): the codes of piece j.
  template <class Pack>
  FA3_DEV void store(const Pack& pack) const {
    u8* const to = smem_.codes[warp_][row_];
    if constexpr (kTurn.lanes() == 1) {
      FA3_UNROLL
      for (int j = 0; j < kTurn.pieces(); j += 2) {
        const ptx::Vec<u32, 2> low = pack(j), high = pack(j + 1);
        ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 4>*>(to + 8 * j),
                       ptx::Vec<u32, 4>{{low[0], low[1], high[0], high[1]}});
      }
    } else {
      FA3_UNROLL
      for (int j = 0; j < kTurn.pieces(); ++j) {
        const i32 piece = turned_piece_of<kTurn>(j, static_cast<i32>(flip(row_)));
        ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 2>*>(to + 8 * piece), pack(j));
      }
    }
  }

  // Two lanes a row: neighbouring pieces change places in rows that would meet the same banks.
  FA3_DEV static u32 flip(u32 row) { return kTurn.lanes() == 2 ? row / 8 % 2 : 0; }

  FA3_DEV u8* codes_of(u32 stage, const TilePart& own) const {
    return ptx::ld_shared(&smem_.target[stage].codes) + own.row * args_.codes.row +
           own.head * args_.codes.head;
  }

  // What the warp has stored, to rows of the tensor.
  FA3_DEV void write(u32 stage, i32 i) const {
    const TilePart own = part(stage, i);
    u8* const to = codes_of(stage, own);
    const i32 rows = ptx::ld_shared(&smem_.rows[stage].rows) - own.row;
    if (rows >= kCfg.warp_rows() && args_.wide_codes) return write_all(to);
    constexpr u32 kPieces = kTurn.head_dim / 8;
    const u32 all = static_cast<u32>(clamp(rows, 0, kCfg.warp_rows())) * kPieces;
    FA3_NO_UNROLL
    for (u32 at = lane_; at < all; at += 32) {
      const u32 row = at / kPieces, column = at % kPieces * 8;
      const auto* const from = &smem_.codes[warp_][row][column ^ 8 * flip(row)];
      ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2>*>(to + row * args_.codes.row + column),
                     ptx::ld_shared(reinterpret_cast<const ptx::Vec<u32, 2>*>(from)));
    }
  }

  // 16 bytes a lane, of as many rows at a time as 32 lanes have.
  FA3_DEV void write_all(u8* to) const {
    constexpr u32 kPieces = kTurn.head_dim / 16;
    constexpr u32 kStep = max(32 / kPieces, 1u), kLanes = kStep * kPieces;
    static_assert(kPieces <= 32);
    const u32 row = lane_ / kPieces, column = lane_ % kPieces * 16;
    to += row * args_.codes.row + column;
    FA3_UNROLL
    for (u32 i = 0; i < kRows; i += kStep) {
      const bool own = kLanes == 32 || (lane_ < kLanes && i + row < kRows);
      const auto* const from = &smem_.codes[warp_][i + (own ? row : 0)][column];
      auto piece = ptx::ld_shared(reinterpret_cast<const ptx::Vec<u32, 4>*>(from));
      if (flip(8 % kStep == 0 ? i : i + row) != 0)
        piece = {{piece[2], piece[3], piece[0], piece[1]}};
      if (own) ptx::st_global(reinterpret_cast<ptx::Vec<u32, 4>*>(to), piece);
      to += kStep * args_.codes.row;
    }
  }

  // Rows none of which counts.
  FA3_DEV void clear(u32 stage, i32 i) const {
    const float amax[kBlocks] = {};
    store_scale(stage, i, amax);
    const TilePart own = part(stage, i);
    const i32 row = own.row + static_cast<i32>(row_);
    if (row >= ptx::ld_shared(&smem_.rows[stage].rows)) return;
    u8* const to = codes_of(stage, own) + row_ * args_.codes.row;
    FA3_UNROLL
    for (int j = 0; j < kTurn.pieces(); ++j)
      ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2>*>(to + 8 * piece_of<kTurn>(j)),
                     ptx::Vec<u32, 2>{});
  }

  const QuantizeArgs& args_;
  RotatedSmem<kCfg>& smem_;
  const u32 warp_;
  u32 lane_ = 0, row_ = 0;  // which lane this is, and its row of a part
  u32 phases_ = 0;          // of x_full, and times 2 of tile_full: in one register
};

}  // namespace fa3::sm90
