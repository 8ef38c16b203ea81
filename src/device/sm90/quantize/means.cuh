// SPDX-License-Identifier: BSD-3-Clause
// means.cuh — the mean of y = H·S·R·x over the rows of a sequence, column by column. A CTA stores
// of chunks of kSumRows rows and each column the sum, the least and the largest (sums.h). The last
// CTA of a head to do so makes of them the mean and, where a head or the tensor has one scale, the
// largest |y − mean|: the distance of the least or of the largest y.
// CONTRACT  only finite y count. Sums of kSumRows finite values are taken to be finite in FP32.
//           summed is 0 before. maxima as in maxima.cuh.
// GRID      x: heads · y: CTAs that share the chunks of a sequence · z: sequences
// SYNC      cta_sync before and after the count of a head; where it makes maxima two more
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/smem.h"
#include "device/sm90/quantize/scale.h"
#include "device/sm90/quantize/sums.h"

namespace fa3::sm90 {

template <TurnConfig kCfg>
struct MeansSmem {
  typename SumsOf<kCfg>::Type::Smem sums;
  u32 maxima[kCfg.col_blocks()];
  u32 last;
  FA3_NAMED(sums, maxima, last)
};

// Of a column's values, `rows` in all, less their mean: as own_maxima.
FA3_DEV float largest_of(const ColumnSums& of, i32 rows, float unit, float mean, bool to_i8) {
  if (to_i8 && of.count < rows) return kInf - kInf;
  if (of.count == 0) return 0;
  const float most = ptx::max(ptx::fma(of.most, unit, -mean), -ptx::fma(of.least, unit, -mean));
  if (most < kInf) return most;
  return to_i8 ? kInf - kInf : kMostAmax;
}

// From the sums of all chunks. All threads.
template <TurnConfig kCfg>
FA3_DEV void make_means(const QuantizeArgs& args, const QuantizePlace& place,
                        MeansSmem<kCfg>& smem) {
  constexpr int kBlocks = kCfg.col_blocks();
  constexpr float kUnit = SumsOf<kCfg>::kUnit;
  const int thread = static_cast<int>(ptx::thread_index());
  if (args.maxima_of_means) {
    if (thread < kBlocks) ptx::st_shared(&smem.maxima[thread], u32{0});
    ptx::cta_sync();
  }
  FA3_UNROLL
  for (int column = thread; column < kCfg.head_dim; column += kCfg.sum_threads()) {
    ColumnSums all = no_rows();
    double sum = 0;
    const ColumnSums* const from = sums_of<kCfg>(args, place, 0) + column;
    const i32 chunks = static_cast<i32>(div_up(place.rows.used, kSumRows));
    for (i32 chunk = 0; chunk < chunks; ++chunk) {
      const ColumnSums one = ptx::ld_global(from + i64{chunk} * kCfg.head_dim);
      merge(all, one);
      sum += one.sum;
    }
    const float mean =
        all.count == 0 ? 0.f : static_cast<float>(sum * kUnit / static_cast<double>(all.count));
    ptx::st_global(
        args.offset.data + place.b * args.offset.batch + place.head * args.offset.head + column,
        mean);
    if (args.maxima_of_means)
      ptx::atom_shared_max_u32(
          &smem.maxima[kCfg.block_cols == 0 ? 0 : column / kCfg.block_cols],
          ptx::bits_as<u32>(ptx::abs(largest_of(all, place.rows.used, kUnit, mean, args.to_i8))));
  }
  if (!args.maxima_of_means) return;
  ptx::cta_sync();
  if (thread < kBlocks)
    ptx::atom_max_u32(maxima_of(args, place, 0, kBlocks) + thread,
                      ptx::ld_shared(&smem.maxima[thread]));
}

template <TurnConfig kCfg>
FA3_KERNEL(kCfg.sum_threads(), kCfg.sum_ctas())
void quantize_means(FA3_GRID_CONSTANT const QuantizeArgs args) {
  auto& smem = ptx::smem_as<MeansSmem<kCfg>>();
  static_assert(sizeof smem <= kCfg.sum_bytes(), "sum_bytes() forgets something");
  ptx::pdl_launch();
  typename SumsOf<kCfg>::Type sums(args, smem.sums);
  ptx::pdl_wait();
  QuantizePlace place(args);
  place.rows.used = min(place.rows.used, kSumRows * args.chunks);
  sums.run(place);
  ptx::cta_sync();  // all have stored theirs
  if (ptx::thread_index() == 0) {
    // Release: of what the CTA has stored. Acquire: of what others have.
    u32* const summed = args.summed + i64{place.b} * args.heads + place.head;
    ptx::st_shared(&smem.last, ptx::atom_add_acq_rel_u32(summed, 1) + 1);
  }
  ptx::cta_sync();
  if (ptx::ld_shared(&smem.last) == static_cast<u32>(place.ctas)) make_means(args, place, smem);
}

}  // namespace fa3::sm90
