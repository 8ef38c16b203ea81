// SPDX-License-Identifier: BSD-3-Clause
// transpose8.h — O = Σ P·V in FP8 with V as it lies in memory, [kv][d]: a loader warp, a warpgroup
// that transposes tiles in shared memory, a warpgroup that multiplies; and the same with one line
// wrong.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/hopper/transpose8.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"

namespace fa3::faulty {

enum class TransposeFault {
  kNone,
  kMissingFence,
  kFenceBeforeStore,
  kMissingReadBarrier,
  kMissingTransposedEmptyWait,
  kMissingRawFullWait,
  kWithoutSigma,
  kWithoutTau,
  kRowAt8,
};

struct TransposeArgs {
  TensorMap v;     // FP8 E4M3 [kv][128], boxes of 128 columns × 64 rows, swizzle 128
  const float* p;  // [64][kv]
  float* o;        // [64][128]
  u32 tiles;
};

struct TransposeSmem {
  alignas(1024) u8 v[2][64 * 128];   // [kv][d], swizzle 128
  alignas(1024) u8 vt[2][128 * 64];  // [d][kv], both permuted, swizzle 64
  Barrier v_full[2], v_empty[2], vt_full[2], vt_empty[2];
  FA3_NAMED(v, vt, v_full, v_empty, vt_full, vt_empty)
};

FA3_DEV void transpose_load(TransposeSmem& smem, const TransposeArgs& args) {
  auto ring = Ring<2>::producer();
  for (u32 tile = 0; tile < args.tiles; ++tile, ring.advance()) {
    smem.v_empty[ring.stage].wait(ring.phase);
    smem.v_full[ring.stage].arrive_expect_tx(sizeof(smem.v[0]));
    ptx::tma_load_2d(ptx::smem_address(smem.v[ring.stage]), args.v,
                     smem.v_full[ring.stage].address(), 0, static_cast<i32>(64 * tile));
  }
}

template <TransposeFault kFault>
FA3_DEV void transpose_tiles(TransposeSmem& smem, const TransposeArgs& args) {
  using F = TransposeFault;
  const u32 warp = ptx::warp_index() % 4, lane = ptx::lane_index();
  Ring<2> from;
  auto to = Ring<2>::producer();
  for (u32 tile = 0; tile < args.tiles; ++tile, from.advance(), to.advance()) {
    if constexpr (kFault != F::kMissingRawFullWait) smem.v_full[from.stage].wait(from.phase);
    if constexpr (kFault != F::kMissingTransposedEmptyWait) smem.vt_empty[to.stage].wait(to.phase);
    const u32 kv = 16 * warp;
    for (u32 d = 0; d < 128; d += 32) {
      const Place source = transpose8_source(lane);
      const u32 misplaced = kFault == F::kRowAt8 ? 8 : 0;
      const auto loaded = ptx::ldmatrix_x4_trans(
          smem.v[from.stage] + panel_offset(kv + source.row, d + source.column, Swizzle::k128) +
          misplaced);
      if constexpr (kFault == F::kFenceBeforeStore) ptx::fence_proxy_async_shared();
      const u32 row = d + transpose8_target(lane);
      ptx::stmatrix_x4(smem.vt[to.stage] + panel_offset(row, kv, Swizzle::k64),
                       transpose8_step(loaded));
    }
    // One fence for both: stores before wgmma reads them, loads before TMA overwrites them.
    if constexpr (kFault != F::kMissingFence && kFault != F::kFenceBeforeStore) {
      ptx::fence_proxy_async_shared();
    }
    smem.vt_full[to.stage].arrive();
    if constexpr (kFault != F::kMissingReadBarrier) NamedBarrier{1, 128}.sync();
    smem.v_empty[from.stage].arrive_if(warp == 0 && lane == 0);
  }
}

template <TransposeFault kFault>
FA3_DEV void transpose_multiply(TransposeSmem& smem, const TransposeArgs& args) {
  using F = TransposeFault;
  const u32 thread = ptx::thread_index() % 128;
  ptx::Acc<128> out;
  Ring<2> ring;
  for (u32 tile = 0; tile < args.tiles; ++tile, ring.advance()) {
    ptx::Acc<64> scores;
    for (int i = 0; i < scores.size(); i += 2) {
      const Place place = accumulator_place(thread, static_cast<u32>(i));
      const auto pair = ptx::ld_global(reinterpret_cast<const ptx::Vec<float, 2>*>(
          args.p + place.row * 64 * args.tiles + 64 * tile + place.column));
      scores[i] = pair[0];
      scores[i + 1] = pair[1];
    }
    ptx::AFrag p[2];
    if constexpr (kFault == F::kWithoutSigma) {
      to_operand8<MmaType::kE4m3>(p, scores, ptx::lane_index());
    } else {
      to_operand8_permuted<MmaType::kE4m3>(p, scores);
    }
    smem.vt_full[ring.stage].wait(ring.phase);
    gemm_rs<MmaType::kE4m3>(
        out, p, tile_at<KMajorTile<Swizzle::k64, 128 * 64>>(smem.vt[ring.stage]), tile > 0);
    gemm_wait<0>(out);
    smem.vt_empty[ring.stage].arrive_if(thread == 0);
  }
  if constexpr (kFault != F::kWithoutTau) untranspose8(out);
  for (int i = 0; i < out.size(); i += 2) {
    const Place place = accumulator_place(thread, static_cast<u32>(i));
    ptx::st_global(reinterpret_cast<ptx::Vec<float, 2>*>(args.o + place.row * 128 + place.column),
                   ptx::Vec<float, 2>{out[i], out[i + 1]});
  }
}

template <TransposeFault kFault>
FA3_KERNEL(384, 1)
void transpose8(FA3_GRID_CONSTANT const TransposeArgs args) {
  auto& smem = ptx::smem_as<TransposeSmem>();
  const u32 wg = ptx::warpgroup_index();
  if (ptx::thread_index() == 0) {
    for (int s = 0; s < 2; ++s) {
      smem.v_full[s].init(1);
      smem.v_empty[s].init(1);
      smem.vt_full[s].init(128);
      smem.vt_empty[s].init(1);
    }
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (wg == 0) {
    if (ptx::warp_index() == 0 && ptx::elect_one()) transpose_load(smem, args);
  } else if (wg == 1) {
    transpose_tiles<kFault>(smem, args);
  } else {
    transpose_multiply<kFault>(smem, args);
  }
}

}  // namespace fa3::faulty
