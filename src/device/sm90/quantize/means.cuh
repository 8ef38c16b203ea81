// SPDX-License-Identifier: BSD-3-Clause
// means.cuh — the mean of y = H·S·R·x over the rows of a sequence, column by column, in two
// kernels: sums of R·x over kSumRows rows each; then their sum, divided, and H·S of it, which is
// linear. Sums are made in an order that the shape alone decides.
// CONTRACT  only finite y count. Columns of a Hadamard block are finite together, so that x counts
//           where y is. Sums of kSumRows finite values are taken to be finite in FP32.
// GRID      sums: x: chunks of kSumRows rows · y: heads · z: sequences.
//           means: x: 1 · y: heads · z: sequences; a thread a column
// SYNC      all threads of a CTA, after each change of shared memory
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/smem.h"
#include "device/sm90/quantize/turn.h"

namespace fa3::sm90 {

template <TurnConfig kCfg>
struct SumsSmem {
  float sum[kSumThreads / 32][kCfg.head_dim];
  i32 count[kSumThreads / 32][kCfg.head_dim];
  u32 not_finite;
  FA3_NAMED(sum, count, not_finite)
};

// Adds up registers over the rows of a warp.
template <TurnConfig kCfg, class T, int N>
FA3_DEV void sum_over_rows(T (&value)[N]) {
  FA3_UNROLL
  for (int v = 0; v < N; ++v) {
    FA3_UNROLL
    for (int m = kCfg.lanes(); m < 32; m *= 2)
      value[v] += ptx::shfl_xor(value[v], static_cast<u32>(m));
  }
}

// The lanes of one row put of(v), of their value v, where its column is.
template <TurnConfig kCfg, class T, class F>
FA3_DEV void store_columns(T* to, const F& of) {
  if (ptx::lane_index() >= static_cast<u32>(kCfg.lanes())) return;
  FA3_UNROLL
  for (int v = 0; v < kCfg.values(); ++v)
    ptx::st_shared(to + 8 * piece_of<kCfg>(v / 8) + v % 8, of(v));
}

// Of the rows of a chunk, in smem by warp: all of them, which are finite.
template <TurnConfig kCfg>
FA3_DEV void sum_all(const RowTurner<kCfg>& turner, const QuantizePlace& place, i32 first,
                     SumsSmem<kCfg>& smem) {
  float sum[kCfg.values()] = {};
  FA3_NO_UNROLL
  for (i32 i = first; i < min(first + kSumRows, place.rows.used); i += kSumThreads / kCfg.lanes()) {
    float x[kCfg.values()];
    turner.load(place, i + turner.row(0), x);
    FA3_UNROLL
    for (int v = 0; v < kCfg.values(); ++v) sum[v] += x[v];
  }
  sum_over_rows<kCfg>(sum);
  store_columns<kCfg>(smem.sum[ptx::thread_index() / 32], [&](int v) { return sum[v]; });
}

// The same of what is finite, and how many there are.
template <TurnConfig kCfg>
FA3_DEV void sum_finite(const RowTurner<kCfg>& turner, const QuantizePlace& place, i32 first,
                        SumsSmem<kCfg>& smem) {
  float sum[kCfg.values()] = {};
  u32 count[kCfg.values() / 4] = {};  // four to a word: a warp has fewer than 256 rows of a chunk
  static_assert(kSumRows * 32 / kSumThreads < 256);
  FA3_NO_UNROLL
  for (i32 i = first; i < min(first + kSumRows, place.rows.used); i += kSumThreads / kCfg.lanes()) {
    // Which values count, then the values again: registers for both at a time are not there.
    float x[kCfg.values()];
    turner.load(place, i + turner.row(0), x);
    turner.spread(x);
    u64 counts[2] = {};
    FA3_UNROLL
    for (int v = 0; v < kCfg.values(); ++v)
      counts[v / 64] |= u64{i + turner.row(0) < place.rows.used && ptx::abs(x[v]) < kInf} << v % 64;
    turner.load(place, i + turner.row(0), x);
    FA3_UNROLL
    for (int v = 0; v < kCfg.values(); ++v) {
      const bool one = (counts[v / 64] >> v % 64 & 1) != 0;
      sum[v] += one ? x[v] : 0;
      count[v / 4] += one ? 1u << 8 * (v % 4) : 0;
    }
  }
  sum_over_rows<kCfg>(sum);
  sum_over_rows<kCfg>(count);
  store_columns<kCfg>(smem.sum[ptx::thread_index() / 32], [&](int v) { return sum[v]; });
  store_columns<kCfg>(smem.count[ptx::thread_index() / 32],
                      [&](int v) { return static_cast<i32>(count[v / 4] >> 8 * (v % 4) & 255); });
}

template <TurnConfig kCfg>
FA3_KERNEL(kSumThreads, kCfg.values() <= 32 ? 2 : 1)
void quantize_sums(FA3_GRID_CONSTANT const QuantizeArgs args) {
  auto& smem = ptx::smem_as<SumsSmem<kCfg>>();
  ptx::pdl_launch();
  ptx::pdl_wait();
  const QuantizePlace place(args);
  const RowTurner<kCfg> turner(args);
  const i32 chunk = static_cast<i32>(ptx::block_index_x());
  const u32 thread = ptx::thread_index();
  const auto over_warps = [&](const auto& of_warp, auto& sum) {
    sum = 0;
    for (int warp = 0; warp < kSumThreads / 32 && thread < static_cast<u32>(kCfg.head_dim); ++warp)
      sum += ptx::ld_shared(&of_warp[warp][thread]);
  };
  if (thread == 0) ptx::st_shared(&smem.not_finite, u32{0});
  const i32 first = kSumRows * chunk;
  sum_all(turner, place, first, smem);
  ptx::cta_sync();
  float sum;
  over_warps(smem.sum, sum);
  i32 count = clamp(place.rows.used - first, 0, kSumRows);
  if (!(ptx::abs(sum) < kInf)) ptx::atom_shared_max_u32(&smem.not_finite, 1);
  ptx::cta_sync();
  if (ptx::ld_shared(&smem.not_finite) != 0) {
    sum_finite(turner, place, first, smem);
    ptx::cta_sync();
    over_warps(smem.sum, sum);
    over_warps(smem.count, count);
  }
  if (thread >= static_cast<u32>(kCfg.head_dim)) return;
  const i64 at = ((i64{place.b} * args.heads + place.head) * args.chunks + chunk) * kCfg.head_dim +
                 i64{thread};
  ptx::st_global(args.sums + at, sum);
  ptx::st_global(args.counts + at, count);
}

template <TurnConfig kCfg>
struct MeansSmem {
  float mean[kCfg.head_dim];
  FA3_NAMED(mean)
};

template <TurnConfig kCfg>
FA3_KERNEL(kSumThreads)
void quantize_means(FA3_GRID_CONSTANT const QuantizeArgs args) {
  auto& smem = ptx::smem_as<MeansSmem<kCfg>>();
  ptx::pdl_launch();
  ptx::pdl_wait();
  const i32 b = static_cast<i32>(ptx::block_index_z()),
            head = static_cast<i32>(ptx::block_index_y());
  const u32 column = ptx::thread_index();
  const bool active = column < static_cast<u32>(kCfg.head_dim);
  float mean = 0;
  if (active) {
    const i64 first = (i64{b} * args.heads + head) * args.chunks * kCfg.head_dim + i64{column};
    double sum = 0;
    i64 count = 0;
    for (i32 chunk = 0; chunk < args.chunks; ++chunk) {
      sum += ptx::ld_global(args.sums + first + i64{chunk} * kCfg.head_dim);
      count += ptx::ld_global(args.counts + first + i64{chunk} * kCfg.head_dim);
    }
    mean = count == 0 ? 0.f : static_cast<float>(sum / static_cast<double>(count));
  }
  if constexpr (kCfg.hadamard > 0) {
    const u32 word = active ? args.sign[column / 8][static_cast<int>(column % 8 / 2)] : 0u;
    const u32 bit = column % 2 == 0 ? word << 16 : word & 0x80000000u;
    mean = ptx::bits_as<float>(ptx::bits_as<u32>(mean * args.unit) ^ bit);
    FA3_NO_UNROLL
    for (u32 half = 1; half < static_cast<u32>(kCfg.hadamard); half *= 2) {
      if (active) ptx::st_shared(&smem.mean[column], mean);
      ptx::cta_sync();
      if (active) {
        const float other = ptx::ld_shared(&smem.mean[column ^ half]);
        mean = (column & half) != 0 ? other - mean : mean + other;
      }
      ptx::cta_sync();
    }
  }
  if (active)
    ptx::st_global(args.offset.data + b * args.offset.batch + head * args.offset.head + column,
                   mean);
}

}  // namespace fa3::sm90
