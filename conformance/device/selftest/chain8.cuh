// SPDX-License-Identifier: BSD-3-Clause
// chain8.cuh — O = e4m3(Q·Kᵀ)·V for one tile: everything by which FP8 differs from 16 bits. The
// first GEMM's accumulator becomes the second's A operand, and V, given by rows of kv, its
// K-major B.
//
// 1 CONTRACT  Q[64][128], K[64 kv][128], O[64][128 d] in FP32. V[64 kv][128 d], or V[128 d][64 kv]
//             when it comes transposed. Boxes are whole tiles, swizzle 128 (V transposed: 64). One
//             CTA.
// 2 ROLES     one warpgroup; thread 0 issues TMA
// 3 BARRIERS  full: count 1, all tiles' bytes
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/descriptor.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/transpose8.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/types.h"

namespace fa3 {

struct Chain8Args {
  TensorMap q, k, v;
  float* o;
};

// 4 SMEM
struct Chain8Smem {
  static constexpr u32 kTileBytes = 64 * 128;

  alignas(1024) u8 q[kTileBytes];
  alignas(1024) u8 k[kTileBytes];
  alignas(1024) u8 v[kTileBytes];             // [kv][d]
  alignas(1024) u8 v_transposed[kTileBytes];  // [d][kv]
  Barrier full;
  FA3_NAMED(q, k, v, v_transposed, full)
};

// V[kv][d] → [d][kv], both permuted as transpose8.h says: 16 × 32 elements a warp and turn.
FA3_DEV void chain8_transpose(Chain8Smem& smem) {
  const u32 lane = ptx::lane_index(), kv = 16 * ptx::warp_index();
  const Place source = transpose8_source(lane);
  FA3_UNROLL
  for (u32 d = 0; d < 128; d += 32) {
    const auto loaded = ptx::ldmatrix_x4_trans(
        smem.v + panel_offset(kv + source.row, d + source.column, Swizzle::k128));
    ptx::stmatrix_x4(
        smem.v_transposed + panel_offset(d + transpose8_target(lane), kv, Swizzle::k64),
        transpose8_step(loaded));
  }
  ptx::fence_proxy_async_shared();
  ptx::cta_sync();
}

template <bool kTransposed>
FA3_KERNEL(128, 1)
void chain8(FA3_GRID_CONSTANT const Chain8Args args) {
  auto& smem = ptx::smem_as<Chain8Smem>();
  const u32 thread = ptx::thread_index();
  if (thread == 0) {
    smem.full.init(1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (thread == 0) {
    smem.full.arrive_expect_tx(3 * Chain8Smem::kTileBytes);
    const u32 full = smem.full.address();
    ptx::tma_load_2d(ptx::smem_address(smem.q), args.q, full, 0, 0);
    ptx::tma_load_2d(ptx::smem_address(smem.k), args.k, full, 0, 0);
    ptx::tma_load_2d(ptx::smem_address(kTransposed ? smem.v_transposed : smem.v), args.v, full, 0,
                     0);
  }
  ptx::warp_sync();
  smem.full.wait(0);
  if constexpr (!kTransposed) chain8_transpose(smem);

  using Rows128 = KMajorTile<Swizzle::k128, Chain8Smem::kTileBytes>;
  using Rows64 = KMajorTile<Swizzle::k64, Chain8Smem::kTileBytes>;
  ptx::Acc<64> s;
  gemm_ss<MmaType::kE4m3, 4>(s, tile_at<Rows128>(smem.q), tile_at<Rows128>(smem.k), kOverwrite);
  gemm_wait<0>(s);
  ptx::AFrag p[2];
  if constexpr (kTransposed) {
    to_operand8<MmaType::kE4m3>(p, s, ptx::lane_index());
  } else {
    to_operand8_permuted<MmaType::kE4m3>(p, s);
  }
  ptx::Acc<128> o;
  gemm_rs<MmaType::kE4m3>(o, p, tile_at<Rows64>(smem.v_transposed), kOverwrite);
  gemm_wait<0>(o);
  if constexpr (!kTransposed) untranspose8(o);
  FA3_UNROLL
  for (int i = 0; i < o.size(); i += 2) {
    const Place place = accumulator_place(thread, i);
    ptx::st_global(reinterpret_cast<ptx::Vec<float, 2>*>(args.o + 128 * place.row + place.column),
                   ptx::Vec<float, 2>{o[i], o[i + 1]});
  }
}

}  // namespace fa3
