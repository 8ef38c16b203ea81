// SPDX-License-Identifier: BSD-3-Clause
// codes.cuh — rows turned, less the mean, as codes; and the scales.
// CONTRACT  every code and every scale is written once: codes 0 in rows that do not count, scales 1
//           in blocks of none. cu_seqlens, seqused and positions may hold anything.
// GRID      x: heads · y: CTAs that share the rows of a sequence · z: sequences, and with
//           cu_seqlens one more (QuantizePlace)
// SYNC      blocks of several rows: cta_sync between the stores and the loads of a block's maxima,
//           and before the next block's stores: by GEMM that of its turn
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/smem.h"
#include "device/sm90/quantize/pack.h"

namespace fa3::sm90 {

template <QuantizeConfig kCfg>
struct CodesSmem {
  typename Turner<kCfg.turn, kCfg.warpgroups()>::Smem turn;
  MeanSmem<kCfg.turn> mean;
  u32 maxima[kCfg.threads() / 32][kCfg.turn.col_blocks()];
  FA3_NAMED(turn, mean, maxima)
};

template <QuantizeConfig kCfg>
class RowQuantizer {
 public:
  using Turner = sm90::Turner<kCfg.turn, kCfg.warpgroups()>;
  static constexpr int kBlocks = kCfg.turn.col_blocks();
  static constexpr int kDepth = kCfg.turn.depth();
  static constexpr int kValues = kCfg.turn.values();

  FA3_DEV RowQuantizer(const QuantizeArgs& args, CodesSmem<kCfg>& smem)
      : args_(args), smem_(smem), turner_(args, smem.turn) {}

  // Before the rows of a sequence in a head.
  FA3_DEV void start(const QuantizePlace& place, const RowWalk& walk) {
    turner_.start(place, walk);
    // A tensor without rows may be null.
    codes_ = args_.codes.data + (place.rows.rows > 0 ? place.at(args_.codes, 0) : 0);
    scales_ = scales_of(args_, place);
    centred_ = load_means<kCfg.turn, kCfg.warpgroups()>(args_, place, smem_.mean);
    unit_ = centred_ ? 1.f : Turner::kUnit;
  }

  // The rows of turn n, and of those with which it shares a block.
  FA3_DEV void quantize(const QuantizePlace& place, const RowWalk& walk, i32 n) {
    const i32 first = walk.first(n);
    if (first >= place.rows.used) return clear(place, first);
    float y[kCfg.turns()][kDepth][kValues];
    float amax[kBlocks] = {};
    FA3_UNROLL
    for (int k = 0; k < kCfg.turns(); ++k) {
      // Of a block, the last turns may have no row that counts.
      const bool any = k == 0 || walk.first(n + k) < place.rows.used;
      if (any) turner_.turn(place, walk, n + k, y[k]);
      FA3_UNROLL
      for (int r = 0; r < kDepth; ++r) {
        const i32 i = row(first, k, r);
        float own[kBlocks] = {};
        if (any) {
          if (centred_) centre(smem_.mean, Turner::kUnit, y[k][r]);
          // Where they are known, for the NaN that they make of what is not finite.
          if constexpr (kCfg.block_rows > 0 || !kCfg.to_i8)
            own_maxima<kCfg.turn>(y[k][r], unit_, kCfg.to_i8, own);
        }
        if constexpr (kCfg.block_rows == 0) {
          take_maxima(place, i, own);
        } else {
          FA3_UNROLL
          for (int c = 0; c < kBlocks; ++c) own[c] = i < place.rows.used ? own[c] * unit_ : 0;
        }
        if constexpr (kCfg.block_rows == 1) over_lanes<kCfg.turn>(own);
        if constexpr (kCfg.block_rows <= 1) {
          write(place, i, y[k][r], own);
        } else {
          FA3_UNROLL
          for (int c = 0; c < kBlocks; ++c) amax[c] = ptx::max_nan(amax[c], own[c]);
        }
      }
    }
    if constexpr (kCfg.block_rows > 1) {
      meet(amax);
      FA3_UNROLL
      for (int k = 0; k < kCfg.turns(); ++k) {
        FA3_UNROLL
        for (int r = 0; r < kDepth; ++r) write(place, row(first, k, r), y[k][r], amax);
      }
    }
  }

 private:
  // The thread's row r of turn k. Where the rows of a block are no multiple of the CTA's, the last
  // ones are none: rows behind all others.
  FA3_DEV i32 row(i32 first, int k, int r) const {
    const i32 i = kCfg.turn_rows() * k + turner_.row(r);
    return i < kCfg.rows() ? first + i : kNoRow;
  }

  // Rows from `first` on, none of which counts.
  FA3_DEV void clear(const QuantizePlace& place, i32 first) const {
    FA3_NO_UNROLL
    for (i32 at = static_cast<i32>(ptx::thread_index()) / kCfg.turn.lanes(); at < kCfg.rows();
         at += kCfg.threads() / kCfg.turn.lanes()) {
      const i32 i = first + at;
      float amax[kBlocks] = {};
      if constexpr (kCfg.block_rows == 0) take_maxima(place, i, amax);
      write_scale(place, i, amax);
      write_codes(place, i, [](int) { return ptx::Vec<u32, 2>{}; });
    }
  }

  FA3_DEV void take_maxima(const QuantizePlace& place, i32 i, float (&amax)[kBlocks]) const {
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) amax[k] = 0;
    if (!args_.of_tensor && place.b >= args_.batch) return;
    const u32* const from = maxima_of(args_, place, block_of(args_, i), kBlocks);
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) amax[k] = ptx::bits_as<float>(ptx::ld_global(from + k));
  }

  // The maxima of all threads of the CTA.
  FA3_DEV void meet(float (&amax)[kBlocks]) const {
    const u32 warp = ptx::thread_index() / 32;
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) {
      const u32 most = ptx::redux_max_u32(ptx::bits_as<u32>(amax[k]));
      if (ptx::lane_index() == 0) ptx::st_shared(&smem_.maxima[warp][k], most);
    }
    ptx::cta_sync();
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) {
      u32 most = 0;
      FA3_UNROLL
      for (int w = 0; w < kCfg.threads() / 32; ++w)
        most = max(most, ptx::ld_shared(&smem_.maxima[w][k]));
      amax[k] = ptx::bits_as<float>(most);
    }
    // Before the next block's stores; a GEMM's turn has one there.
    if constexpr (!kCfg.turn.by_gemm()) ptx::cta_sync();
  }

  FA3_DEV void write_scale(const QuantizePlace& place, i32 i, const float (&amax)[kBlocks]) const {
    if (lane_of<kCfg.turn>() == 0) sm90::write_scale<kCfg>(args_, place, scales_, i, amax);
  }

  // pack(j): the codes of piece j.
  template <class Pack>
  FA3_DEV void write_codes(const QuantizePlace& place, i32 i, const Pack& pack) const {
    if (i >= place.rows.rows) return;
    u8* const to = codes_ + i * args_.codes.row + 8 * lane_of<kCfg.turn>();
    FA3_UNROLL
    for (int j = 0; j < kCfg.turn.pieces(); ++j)
      ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2>*>(to + 8 * kCfg.turn.lanes() * j), pack(j));
  }

  // y in units of unit_, amax not.
  FA3_DEV void write(const QuantizePlace& place, i32 i, const float (&y)[kValues],
                     const float (&amax)[kBlocks]) const {
    if (i == kNoRow) return;
    write_scale(place, i, amax);
    if (i >= place.rows.used) return write_codes(place, i, [](int) { return ptx::Vec<u32, 2>{}; });
    pack_row<kCfg>(y, amax, unit_, [&](const auto& pack) { write_codes(place, i, pack); });
  }

  static constexpr i32 kNoRow = 0x7fffffff;

  const QuantizeArgs& args_;
  CodesSmem<kCfg>& smem_;
  Turner turner_;
  u8* codes_;  // of a sequence in a head
  float* scales_;
  bool centred_;
  float unit_;
};

template <QuantizeConfig kCfg>
FA3_KERNEL(kCfg.threads())
void quantize_codes(FA3_GRID_CONSTANT const QuantizeArgs args) {
  auto& smem = ptx::smem_as<CodesSmem<kCfg>>();
  static_assert(sizeof smem <= kCfg.smem_bytes(), "smem_bytes() forgets something");
  ptx::pdl_launch();
  RowQuantizer<kCfg> quantizer(args, smem);
  ptx::pdl_wait();
  const QuantizePlace place(args, kCfg.block_rows == 0);
  // The scale of all rows is written even if there are none.
  const bool of_all = kCfg.block_rows == 0 && (args.of_tensor || args.block_rows == 0);
  const i32 scaled = max(args.most_rows, of_all ? 1 : 0);
  const i32 end = max(place.rows.rows, place.b < args.batch || args.of_tensor ? scaled : 0);
  const RowWalk walk{place.cta * kCfg.rows(), place.ctas * kCfg.rows(), kCfg.turns(),
                     kCfg.turn_rows()};
  quantizer.start(place, walk);
  for (i32 n = 0; walk.first(n) < end; n += kCfg.turns()) quantizer.quantize(place, walk, n);
}

}  // namespace fa3::sm90
