// SPDX-License-Identifier: BSD-3-Clause
// values.h — what becomes of a lane's turned values before they are codes: the mean is taken off,
// and the largest of each block found.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/barrier.h"
#include "device/ptx/math.h"
#include "device/ptx/warp.h"
#include "device/sm90/quantize/turn.h"

namespace fa3::sm90 {

// The means of a head, in shared memory.
template <TurnConfig kCfg>
struct MeanSmem {
  alignas(16) float mean[kCfg.head_dim];
  FA3_NAMED(mean)
};

// False: there are none. All threads of the CTA. Ends in a cta_sync; by GEMM without one, since
// turn() has one before centre().
template <TurnConfig kCfg, int kWarpgroups = 1>
FA3_DEV bool load_means(const QuantizeArgs& args, const QuantizePlace& place,
                        MeanSmem<kCfg>& smem) {
  if (args.offset.data == nullptr || place.b >= args.batch) return false;
  const float* const from =
      args.offset.data + place.b * args.offset.batch + place.head * args.offset.head;
  for (int c = static_cast<int>(ptx::thread_index()); c < kCfg.head_dim;
       c += kWarpgroups * kCfg.threads())
    ptx::st_shared(&smem.mean[c], ptx::ld_global(from + c));
  if constexpr (!kCfg.by_gemm()) ptx::cta_sync();
  return true;
}

// A row in units of `unit`, less the mean: in units of 1.
template <TurnConfig kCfg>
FA3_DEV void centre(const MeanSmem<kCfg>& smem, float unit, float (&y)[kCfg.values()]) {
  FA3_UNROLL
  for (int v = 0; v < kCfg.values(); v += 4) {
    const auto* const from = reinterpret_cast<const ptx::Vec<float, 4>*>(smem.mean);
    const auto mean = ptx::ld_shared(from + 2 * piece_of<kCfg>(v / 8) + v / 4 % 2);
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) y[v + i] = ptx::fma(y[v + i], unit, -mean[i]);
  }
}

// own[block] = fold(own[block], v) for the values of each block of columns, from 0 on.
template <TurnConfig kCfg, class Fold>
FA3_DEV void fold_blocks(float (&own)[kCfg.col_blocks()], const Fold& fold) {
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) own[k] = 0;
  FA3_UNROLL
  for (int v = 0; v < kCfg.values(); ++v) {
    float& block = own[kCfg.col_block(v / 8)];
    block = fold(block, v);
  }
}

// The largest |y| of each block of columns that a lane has of a row, and of all; NaN above all.
template <TurnConfig kCfg>
FA3_DEV float largest(const float (&y)[kCfg.values()], float (&own)[kCfg.col_blocks()]) {
  fold_blocks<kCfg>(own, [&](float most, int v) { return ptx::max_nan(most, ptx::abs(y[v])); });
  float most = 0;
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) most = ptx::max_nan(most, own[k]);
  return most;
}

// The same of a row whose butterflies between columns kLeft apart are still to be done, kLeft < 8:
// |a| + |b| is the larger one of |a + b| and |a − b|, bit for bit. Sums compare as their bits do.
template <TurnConfig kCfg, int kLeft>
FA3_DEV float largest_after(const float (&y)[kCfg.values()], float (&own)[kCfg.col_blocks()]) {
  i32 block[kCfg.col_blocks()] = {};
  FA3_UNROLL
  for (int v = 0; v < kCfg.values(); ++v) {
    if ((v & kLeft) != 0) continue;
    i32& most = block[kCfg.col_block(v / 8)];
    most = max(most, ptx::bits_as<i32>(ptx::abs(y[v]) + ptx::abs(y[v + kLeft])));
  }
  i32 most = 0;
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) {
    most = max(most, block[k]);
    own[k] = ptx::bits_as<float>(block[k]);
  }
  return ptx::bits_as<float>(most);
}

// The same of a few rows, if any: where y · unit is not finite, y becomes NaN, the largest for
// I8, nothing for E4M3, which has a code for it.
template <TurnConfig kCfg>
FA3_DEV void finite_maxima(float (&y)[kCfg.values()], float unit, bool to_i8,
                           float (&own)[kCfg.col_blocks()]) {
  fold_blocks<kCfg>(own, [&](float most, int v) {
    y[v] = ptx::abs(y[v]) * unit < kInf ? y[v] : kInf - kInf;
    return to_i8 ? ptx::max_nan(most, ptx::abs(y[v])) : ptx::max(most, ptx::abs(y[v]));
  });
}

// Of any row.
template <TurnConfig kCfg>
FA3_DEV void own_maxima(float (&y)[kCfg.values()], float unit, bool to_i8,
                        float (&own)[kCfg.col_blocks()]) {
  if (!(largest<kCfg>(y, own) * unit < kInf)) finite_maxima<kCfg>(y, unit, to_i8, own);
}

// The same of the whole row. All lanes of a warp.
template <TurnConfig kCfg>
FA3_DEV void over_lanes(float (&own)[kCfg.col_blocks()]) {
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) {
    FA3_UNROLL
    for (int m = 1; m < kCfg.lanes(); m *= 2)
      own[k] = ptx::max_nan(own[k], ptx::shfl_xor(own[k], static_cast<u32>(m * kCfg.lane_step())));
  }
}

}  // namespace fa3::sm90
