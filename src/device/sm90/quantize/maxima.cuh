// SPDX-License-Identifier: BSD-3-Clause
// maxima.cuh — the largest |y − mean| of blocks of more rows than a CTA holds.
// CONTRACT  maxima are 0 before, and afterwards the largest of their blocks as the bits of an
//           FP32 number, NaN above all. No result depends on the order of CTAs.
// GRID      x: heads · y: CTAs that share the rows of a sequence · z: sequences
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/grid.h"
#include "device/sm90/quantize/scale.h"

namespace fa3::sm90 {

template <TurnConfig kCfg>
struct MaximaSmem {
  typename Turner<kCfg>::Smem turn;
  MeanSmem<kCfg> mean;
  FA3_NAMED(turn, mean)
};

template <QuantizeConfig kCfg>
FA3_KERNEL(kCfg.turn.threads())
void quantize_maxima(FA3_GRID_CONSTANT const QuantizeArgs args) {
  constexpr TurnConfig kTurn = kCfg.turn;
  constexpr int kBlocks = kTurn.col_blocks();
  auto& smem = ptx::smem_as<MaximaSmem<kTurn>>();
  static_assert(sizeof smem <= kTurn.smem_bytes(), "smem_bytes() forgets something");
  ptx::pdl_launch();
  Turner<kTurn> turner(args, smem.turn);
  ptx::pdl_wait();
  const QuantizePlace place(args);
  const bool one_block = args.of_tensor || args.block_rows == 0;
  const auto raise = [&](i32 i, const float(&amax)[kBlocks]) {
    FA3_UNROLL
    for (int k = 0; k < kBlocks; ++k) {
      u32* const to = maxima_of(args, place, block_of(args, i), kBlocks) + k;
      ptx::atom_max_u32(to, ptx::bits_as<u32>(amax[k]));
    }
  };
  float all[kBlocks] = {};
  const RowWalk walk{place.cta * kTurn.rows(), place.ctas * kTurn.rows(), 1, kTurn.rows()};
  turner.start(place, walk);
  const bool centred = load_means(args, place, smem.mean);
  const float unit = centred ? 1.f : Turner<kTurn>::kUnit;
  for (i32 n = 0; walk.first(n) < place.rows.used; ++n) {
    const i32 first = walk.first(n);
    float y[kTurn.depth()][kTurn.values()];
    turner.turn(place, walk, n, y);
    FA3_UNROLL
    for (int r = 0; r < kTurn.depth(); ++r) {
      const i32 i = first + turner.row(r);
      if (centred) centre(smem.mean, Turner<kTurn>::kUnit, y[r]);
      float own[kBlocks];
      own_maxima<kTurn>(y[r], unit, kCfg.to_i8, own);
      FA3_UNROLL
      for (int k = 0; k < kBlocks; ++k) own[k] *= unit;
      if (one_block) {
        FA3_UNROLL
        for (int k = 0; k < kBlocks; ++k)
          if (i < place.rows.used) all[k] = ptx::max_nan(all[k], own[k]);
      } else {
        over_lanes<kTurn>(own);
        if (lane_of<kTurn>() == 0 && i < place.rows.used) raise(i, own);
      }
    }
  }
  if (!one_block) return;
  FA3_UNROLL
  for (int k = 0; k < kBlocks; ++k)
    all[k] = ptx::bits_as<float>(ptx::redux_max_u32(ptx::bits_as<u32>(all[k])));
  if (ptx::lane_index() == 0 && place.rows.used > 0) raise(0, all);
}

}  // namespace fa3::sm90
