// SPDX-License-Identifier: BSD-3-Clause
// means.cuh — the mean of y = H·S·R·x over the rows of a sequence, column by column, in two
// kernels: of kSumRows rows each their sum, the least and the largest (sums.h); then those of all,
// the mean and, where a head or the tensor has one scale, the largest |y − mean|: the distance of
// the least or of the largest y.
// CONTRACT  only finite y count. Sums of kSumRows finite values are taken to be finite in FP32.
//           maxima as in maxima.cuh.
// GRID      sums: x: heads · y: as many as divide the chunks of kSumRows rows · z: sequences.
//           means: x: heads · y: 1 · z: sequences; a thread a column
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/smem.h"
#include "device/sm90/quantize/scale.h"
#include "device/sm90/quantize/sums.h"

namespace fa3::sm90 {

template <TurnConfig kCfg>
FA3_KERNEL(kCfg.sum_threads(), kCfg.sum_ctas())
void quantize_sums(FA3_GRID_CONSTANT const QuantizeArgs args) {
  using Sums = typename SumsOf<kCfg>::Type;
  auto& smem = ptx::smem_as<typename Sums::Smem>();
  ptx::pdl_launch();
  Sums sums(args, smem);
  ptx::pdl_wait();
  QuantizePlace place(args);
  place.rows.used = min(place.rows.used, kSumRows * args.chunks);
  sums.run(place);
}

template <TurnConfig kCfg>
struct MeansSmem {
  u32 maxima[kCfg.col_blocks()];
  FA3_NAMED(maxima)
};

// Of a column's values, `rows` in all, less their mean: as own_maxima.
FA3_DEV float largest_of(const ColumnSums& of, i32 rows, float unit, float mean, bool to_i8) {
  if (to_i8 && of.count < rows) return kInf - kInf;
  if (of.count == 0) return 0;
  const float most = ptx::max(ptx::fma(of.most, unit, -mean), -ptx::fma(of.least, unit, -mean));
  if (most < kInf) return most;
  return to_i8 ? kInf - kInf : kMostAmax;
}

template <TurnConfig kCfg>
FA3_KERNEL(kSumThreads)
void quantize_means(FA3_GRID_CONSTANT const QuantizeArgs args) {
  constexpr int kBlocks = kCfg.col_blocks();
  constexpr float kUnit = SumsOf<kCfg>::kUnit;
  auto& smem = ptx::smem_as<MeansSmem<kCfg>>();
  ptx::pdl_launch();
  ptx::pdl_wait();
  const QuantizePlace place(args);
  const int column = static_cast<int>(ptx::thread_index());
  if (column < kBlocks) ptx::st_shared(&smem.maxima[column], u32{0});
  ptx::cta_sync();
  if (column < kCfg.head_dim) {
    ColumnSums all = no_rows();
    double sum = 0;
    const ColumnSums* const from = sums_of<kCfg>(args, place, 0) + column;
    for (i32 chunk = 0; chunk < args.chunks; ++chunk) {
      const ColumnSums one = ptx::ld_global(from + i64{chunk} * kCfg.head_dim);
      merge(all, one);
      sum += one.sum;
    }
    const float mean =
        all.count == 0 ? 0.f : static_cast<float>(sum * kUnit / static_cast<double>(all.count));
    ptx::st_global(
        args.offset.data + place.b * args.offset.batch + place.head * args.offset.head + column,
        mean);
    const i32 rows = min(place.rows.used, kSumRows * args.chunks);
    if (args.maxima_of_means)
      ptx::atom_shared_max_u32(
          &smem.maxima[kCfg.block_cols == 0 ? 0 : column / kCfg.block_cols],
          ptx::bits_as<u32>(ptx::abs(largest_of(all, rows, kUnit, mean, args.to_i8))));
  }
  if (!args.maxima_of_means) return;
  ptx::cta_sync();
  if (column < kBlocks)
    ptx::atom_max_u32(maxima_of(args, place, 0, kBlocks) + column,
                      ptx::ld_shared(&smem.maxima[column]));
}

}  // namespace fa3::sm90
