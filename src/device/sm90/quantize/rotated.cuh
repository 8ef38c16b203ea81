// SPDX-License-Identifier: BSD-3-Clause
// rotated.cuh — rows of 16 bits rotated, then turned, as codes with a scale for each row.
//
// A rotated row has more than 16 bits, so that the transform is additions, and the fewer lanes
// share a row, the fewer of them take a shuffle: here one lane has a row of up to 128 columns. The
// tables of the angles are larger than x, so a tile is the same rows of several heads, and what can
// be computed for all of them is: signs, the factor 1/√hadamard and, where the partners of a pair
// are partners in the transform, too, the sum and the difference of cosine and sine:
//   a·cos − b·sin + (b·cos + a·sin) = a·(cos + sin) + b·(cos − sin)
//   a·cos − b·sin − (b·cos + a·sin) = a·(cos − sin) − b·(cos + sin)
// CTAs stay, since one that begins has nothing to do until its first bytes are there. Producer
// warps bring tables and x; each consumer warp codes the rows of a head on its own.
// CONTRACT  as codes.cuh
// GRID      x: CTAs that take tiles (RotatedGrid), in turns or whoever is next
// BARRIERS  tile_known[stage]: count 1; what the tile is.
//           tile_full[stage]: count 96, the lanes of the tables' producers.
//           tile_empty[stage]: count consumers + 1, that of x: have no more use for the tile.
//           x_full[consumer]: count 1, bytes.  x_empty[consumer]: count 1, all its lanes have read.
// SYNC      warp_sync before x_empty, which also frees the codes' shared memory; between codes'
//           stores and loads; before tile_empty
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/ring.h"
#include "device/hopper/swizzle.h"
#include "device/ptx/async_copy.h"
#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/registers.h"
#include "device/ptx/smem.h"
#include "device/ptx/tma.h"
#include "device/sm90/quantize/pack.h"

namespace fa3::sm90 {

// A tile: rows from `first` on of a sequence (SequenceRows), in some heads.
struct alignas(16) TileRows {
  i32 begin, rows, used, first;

  FA3_DEV bool counts() const { return first < used; }
};
struct alignas(16) TileHeads {
  i32 b, head, heads;  // from `head` on; no heads: there is no tile any more
};

template <RotatedConfig kCfg>
struct RotatedSmem {
  alignas(1024) u8 x[kCfg.consumers()][kCfg.x_bytes()];
  alignas(16) float table[kCfg.kStages][2][kCfg.rows()][kCfg.table_pitch()];
  ptx::Vec<u32, 4> raw[2][kCfg.pieces_of_thread()][32 * kCfg.kTableWarps];  // of the next tables
  alignas(16) u8 codes[kCfg.consumers()][kCfg.rows()][kCfg.code_pitch()];
  alignas(16) u16 sign[kCfg.codes.turn.head_dim];  // bit 15
  TileRows tile[kCfg.kStages];
  TileHeads heads[kCfg.kStages];
  Barrier tile_known[kCfg.kStages], tile_full[kCfg.kStages], tile_empty[kCfg.kStages];
  Barrier x_full[kCfg.consumers()], x_empty[kCfg.consumers()];
  FA3_NAMED(x, table, raw, codes, sign, tile, heads, tile_known, tile_full, tile_empty, x_full,
            x_empty)

  FA3_DEV void init_barriers() {
    FA3_UNROLL
    for (int s = 0; s < kCfg.kStages; ++s)
      tile_known[s].init(1), tile_full[s].init(32 * kCfg.kTableWarps),
          tile_empty[s].init(kCfg.consumers() + 1);
    FA3_UNROLL
    for (int c = 0; c < kCfg.consumers(); ++c) x_full[c].init(1), x_empty[c].init(1);
  }
};

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

// A warp that codes every consumers()-th head of all tiles.
template <RotatedConfig kCfg>
class RotatedConsumer {
 public:
  static constexpr QuantizeConfig kCodes = kCfg.codes;
  static constexpr TurnConfig kTurn = kCodes.turn;
  static constexpr int kBlocks = kTurn.col_blocks();
  static constexpr int kValues = kTurn.values();
  static constexpr i32 kRows = kCfg.rows();
  static constexpr int kRotated = kTurn.rotary_dim / kTurn.lanes();  // values of a lane

  FA3_DEV RotatedConsumer(const QuantizeArgs& args, RotatedSmem<kCfg>& smem, u32 warp)
      : args_(args), smem_(smem), warp_(warp), row_(static_cast<i32>(ptx::lane_index()) % kRows) {}

  FA3_DEV void run() {
    i32 h = static_cast<i32>(warp_);
    FA3_NO_UNROLL
    for (u32 stage = 0;; ++stage) {
      if (stage == kCfg.kStages) stage = 0, phases_ ^= 2;
      smem_.tile_full[stage].wait(phases_ >> 1);
      const i32 heads = ptx::ld_shared(&smem_.heads[stage].heads);
      if (heads == 0) return;
      FA3_NO_UNROLL
      for (; h < heads; h += kCfg.consumers()) code(stage, h);
      h -= heads;
      ptx::warp_sync();
      if (ptx::lane_index() == 0) smem_.tile_empty[stage].arrive();
    }
  }

 private:
  // Head h of a tile. It is read again where it is needed: values take nearly all registers.
  FA3_DEV void code(u32 stage, i32 h) {
    // Asked of the warp each time, so that no addresses are kept in registers from head to head.
    lane_ = static_cast<i32>(ptx::shfl_xor(ptx::lane_index(), 0));
    row_ = lane_ % kRows;
    smem_.x_full[warp_].wait(phases_ & 1);
    phases_ ^= 1;
    if (!ptx::ld_shared(&smem_.tile[stage]).counts()) {
      free_x();
      return clear(stage, h);
    }
    float y[kValues];
    read_x(y);
    float amax[kBlocks];
    turn(stage, y, amax);
    store_row(stage, h, y, amax);
    ptx::warp_sync();
    write(stage, h);
  }

  FA3_DEV void free_x() {
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    if (ptx::lane_index() == 0) smem_.x_empty[warp_].arrive();
  }

  // x of the lane's row, what is not rotated times S/√hadamard.
  FA3_DEV void read_x(float (&y)[kValues]) const {
    constexpr TileLayout kX = kCfg.x_tile();
    FA3_UNROLL
    for (int j = 0; j < kTurn.pieces(); ++j) {
      const bool rotated = 8 * j < kRotated;
      const i32 piece = piece_of<kTurn>(j), column = 16 * piece;  // in bytes
      const u32 offset = static_cast<u32>(column / kX.panel_width() * kX.panel_bytes()) +
                         panel_offset(static_cast<u32>(row_),
                                      static_cast<u32>(column % kX.panel_width()), kX.swizzle());
      const auto* const signs = reinterpret_cast<const ptx::Vec<u32, 4>*>(&smem_.sign[8 * piece]);
      load_piece<kTurn.x>(smem_.x[warp_] + offset, 0, y + 8 * j,
                          rotated ? ptx::Vec<u32, 4>{} : ptx::ld_shared(signs), FromShared{});
      if (rotated) continue;
      FA3_UNROLL
      for (int v = 8 * j; v < 8 * j + 8; ++v) y[v] *= args_.unit;
    }
  }

  // H·S·R·x, and the maxima of its blocks of columns.
  FA3_DEV void turn(u32 stage, float (&y)[kValues], float (&amax)[kBlocks]) {
    constexpr TurnConfig kOfTable = [] {
      TurnConfig turn = kTurn;
      turn.table = FloatType::kF32;
      return turn;
    }();
    const auto& table = smem_.table[stage];
    constexpr int kDone = kCfg.fused() ? kCfg.apart() : 0;
    if constexpr (kCfg.fused()) {
      const auto pair = [](float& a, float& b, float sum, float difference) {
        const float first = a * sum + b * difference;
        b = a * difference - b * sum;
        a = first;
      };
      rotate<kOfTable>(y, table[0][row_], 0, table[1][row_], 0, FromShared{}, pair);
    } else {
      rotate<kOfTable>(y, table[0][row_], 0, table[1][row_], 0, FromShared{});
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
    if (!(most < kInf)) finite_maxima<kTurn>(y, kCodes.to_i8, amax);
  }

  FA3_DEV QuantizePlace place_of(u32 stage, i32 h) const {
    const TileRows rows = ptx::ld_shared(&smem_.tile[stage]);
    const TileHeads heads = ptx::ld_shared(&smem_.heads[stage]);
    return {heads.b, heads.head + h, {rows.begin, rows.rows, rows.used}};
  }

  // The scale of the lane's row, and its codes to shared memory.
  FA3_DEV void store_row(u32 stage, i32 h, const float (&y)[kValues],
                         float (&amax)[kBlocks]) const {
    const QuantizePlace place = place_of(stage, h);
    const i32 i = ptx::ld_shared(&smem_.tile[stage].first) + row_;
    const bool counts = i < place.rows.used;
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) amax[k] = counts ? amax[k] : 0;
    over_lanes<kTurn>(amax);
    if (lane_of<kTurn>() == 0) write_scale<kCodes>(args_, place, scales_of(args_, place), i, amax);
    if (counts) {
      pack_row<kCodes>(y, amax, 1, [&](const auto& pack) { store(pack); });
    } else {
      store([](int) { return ptx::Vec<u32, 2>{}; });
    }
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
      for (int j = 0; j < kTurn.pieces(); ++j)
        ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 2>*>(to + 8 * piece_of<kTurn>(j)), pack(j));
    }
  }

  // What the warp has stored, to rows of the tensor.
  FA3_DEV void write(u32 stage, i32 h) const {
    const QuantizePlace place = place_of(stage, h);
    const i32 first = ptx::ld_shared(&smem_.tile[stage].first);
    const i32 rows = place.rows.rows - first;
    u8* const to = args_.codes.data + place.at(args_.codes, first);
    if (rows >= kRows && args_.wide_codes) return write_all(to);
    constexpr i32 kPieces = kTurn.head_dim / 8;
    FA3_NO_UNROLL
    for (i32 at = lane_; at < min(rows, kRows) * kPieces; at += 32) {
      const i32 row = at / kPieces, column = at % kPieces * 8;
      const auto* const from = &smem_.codes[warp_][row][column];
      ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2>*>(to + row * args_.codes.row + column),
                     ptx::ld_shared(reinterpret_cast<const ptx::Vec<u32, 2>*>(from)));
    }
  }

  // 16 bytes a lane, of as many rows at a time as 32 lanes have.
  FA3_DEV void write_all(u8* to) const {
    constexpr i32 kPieces = kTurn.head_dim / 16;
    constexpr i32 kStep = max(32 / kPieces, 1), kLanes = kStep * kPieces;
    static_assert(kPieces <= 32);
    const i32 row = lane_ / kPieces, column = lane_ % kPieces * 16;
    to += row * args_.codes.row + column;
    FA3_UNROLL
    for (i32 i = 0; i < kRows; i += kStep) {
      const bool own = kLanes == 32 || (lane_ < kLanes && i + row < kRows);
      const auto* const from = &smem_.codes[warp_][i + (own ? row : 0)][column];
      const auto piece = ptx::ld_shared(reinterpret_cast<const ptx::Vec<u32, 4>*>(from));
      if (own) ptx::st_global(reinterpret_cast<ptx::Vec<u32, 4>*>(to), piece);
      to += kStep * args_.codes.row;
    }
  }

  // Rows none of which counts.
  FA3_DEV void clear(u32 stage, i32 h) const {
    const QuantizePlace place = place_of(stage, h);
    const i32 i = ptx::ld_shared(&smem_.tile[stage].first) + row_;
    const float amax[kBlocks] = {};
    if (lane_of<kTurn>() == 0) write_scale<kCodes>(args_, place, scales_of(args_, place), i, amax);
    if (i >= place.rows.rows) return;
    u8* const to = args_.codes.data + place.at(args_.codes, i);
    FA3_UNROLL
    for (int j = 0; j < kTurn.pieces(); ++j)
      ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2>*>(to + 8 * piece_of<kTurn>(j)),
                     ptx::Vec<u32, 2>{});
  }

  const QuantizeArgs& args_;
  RotatedSmem<kCfg>& smem_;
  const u32 warp_;
  i32 lane_ = 0, row_ = 0;  // which lane this is, and its row of a tile
  u32 phases_ = 0;          // of x_full, and times 2 of tile_full: in one register
};

template <RotatedConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void quantize_rotated(FA3_GRID_CONSTANT const QuantizeArgs args) {
  auto& smem = ptx::smem_as<RotatedSmem<kCfg>>();
  static_assert(sizeof smem <= kCfg.smem_bytes(), "smem_bytes() forgets something");
  if (ptx::thread_index() == 0) {
    smem.init_barriers();
    ptx::fence_mbar_init();
  }
  if (const u32 piece = ptx::thread_index(); piece < kCfg.codes.turn.head_dim / 8)
    ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 4>*>(&smem.sign[8 * piece]), args.sign[piece]);
  ptx::pdl_launch();
  ptx::pdl_wait();
  ptx::cta_sync();
  const u32 warp = ptx::warp_index();
  if (warp >= kCfg.consumers()) {
    ptx::reg_decrease<kCfg.kProducerRegisters>();
    const u32 producer = warp - kCfg.consumers();
    if (producer < kCfg.kTableWarps) {
      TableProducer<kCfg>(args, smem, producer).run();
    } else if (producer == kCfg.kTableWarps && ptx::lane_index() == 0) {
      load_rotated<kCfg>(args, smem);
    }
  } else {
    ptx::reg_increase<kCfg.consumer_registers()>();
    RotatedConsumer<kCfg>(args, smem, warp).run();
  }
}

}  // namespace fa3::sm90
