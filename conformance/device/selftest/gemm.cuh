// SPDX-License-Identifier: BSD-3-Clause
// gemm.cuh — C = A·B in BF16 out of 16-bit or FP8 tiles: the smallest kernel with every building
// block of the attention kernels. Shows whether GPU, simulator and compiler handle them.
//
// 1 CONTRACT  A[m][k]; B[n][k], or B[k][n] when the config says so; C[m][n] in BF16. Whole tiles in
//             m and n, at least one in k. Maps: A and B with boxes of 128 bytes × rows of a tile, C
//             with 64 columns × 64 rows, all with swizzle 128. Grid: tiles of m × tiles of n.
// 2 ROLES     wg 0: producer, one thread issues TMA · wg 1, 2: consumers, 64 rows of C each
// 3 BARRIERS  name      count  tx bytes    arrives                    waits
//             full[s]   1      A + B tile  producer, TMA              consumers
//             empty[s]  2      –           thread 0 of each consumer  producer
//             1 + wg    128    (named)     threads of consumer wg     the same: C in shared memory
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/descriptor.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/hopper/swizzle.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/types.h"

namespace fa3 {

struct GemmConfig {
  MmaType type;
  int tile_n;
  int stages;
  bool b_rows_along_n;  // B[k][n]
  bool a_in_registers;

  static constexpr int kTileM = 128, kTileKBytes = 128, kConsumers = 2;
  FA3_HD constexpr int threads() const { return 128 * (1 + kConsumers); }
  FA3_HD constexpr int tile_k() const { return kTileKBytes / size_of(type); }
  FA3_HD constexpr u32 a_bytes() const { return kTileM * kTileKBytes; }
  FA3_HD constexpr u32 b_bytes() const { return tile_n * kTileKBytes; }
};

struct GemmArgs {
  TensorMap a, b, c;
  u32 tiles_k;
};

// 4 SMEM
template <GemmConfig kCfg>
struct GemmSmem {
  alignas(1024) u8 a[kCfg.stages][kCfg.a_bytes()];
  alignas(1024) u8 b[kCfg.stages][kCfg.b_bytes()];
  alignas(1024) u16 c[GemmConfig::kConsumers][kCfg.tile_n / 64][64 * 64];  // panels of 64 columns
  Barrier full[kCfg.stages], empty[kCfg.stages];
  FA3_NAMED(a, b, c, full, empty)
};

template <GemmConfig kCfg>
using GemmRing = Ring<kCfg.stages>;

// 5 PRODUCER: wait until empty → expect → TMA, per tile of k.
template <GemmConfig kCfg>
FA3_DEV void gemm_produce(GemmSmem<kCfg>& smem, const GemmArgs& args) {
  constexpr int kTileK = kCfg.tile_k();
  const i32 row = GemmConfig::kTileM * static_cast<i32>(ptx::block_index_x());
  const i32 column = kCfg.tile_n * static_cast<i32>(ptx::block_index_y());
  auto ring = GemmRing<kCfg>::producer();
  FA3_NO_UNROLL
  for (u32 tile = 0; tile < args.tiles_k; ++tile, ring.advance()) {
    const i32 k = kTileK * static_cast<i32>(tile);
    smem.empty[ring.stage].wait(ring.phase);
    smem.full[ring.stage].arrive_expect_tx(kCfg.a_bytes() + kCfg.b_bytes());
    const u32 full = smem.full[ring.stage].address();
    ptx::tma_load_2d(ptx::smem_address(smem.a[ring.stage]), args.a, full, k, row);
    const u32 b = ptx::smem_address(smem.b[ring.stage]);
    if constexpr (kCfg.b_rows_along_n) {
      FA3_UNROLL
      for (int panel = 0; panel < kCfg.tile_n / 64; ++panel) {
        ptx::tma_load_2d(b + panel * kTileK * 128, args.b, full, column + 64 * panel, k);
      }
    } else {
      ptx::tma_load_2d(b, args.b, full, k, column);
    }
  }
}

// 6 STEP: one tile of k; the MMA of the tile before it is complete when this returns.
template <GemmConfig kCfg, class B>
FA3_DEV void gemm_step(ptx::Acc<kCfg.tile_n>& acc, const u8* a_tile, const B& b, u32 wg) {
  using A = KMajorTile<Swizzle::k128, kCfg.a_bytes()>;
  constexpr int kSteps = GemmConfig::kTileKBytes / 32;
  if constexpr (kCfg.a_in_registers) {
    const u32 lane = ptx::lane_index(), row = 64 * wg + 16 * (ptx::warp_index() % 4) + lane % 16;
    ptx::AFrag a[kSteps];
    FA3_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const ptx::Vec<u32, 4> loaded =
          ptx::ldmatrix_x4(a_tile + panel_offset(row, 32 * s + lane / 16 * 16, Swizzle::k128));
      FA3_UNROLL
      for (int r = 0; r < 4; ++r) a[s][r] = loaded[r];
    }
    // TMA overwrites what was read here; the MMA starts, so also ends, after all warps' fences.
    ptx::fence_proxy_async_shared();
    gemm_rs<kCfg.type>(acc, a, b, kAccumulate);
    gemm_wait<0>(acc);
  } else {
    gemm_ss<kCfg.type, kSteps>(acc, tile_at<A>(a_tile).from_row(64 * wg), b, kAccumulate);
    ptx::wgmma_wait<1>();
  }
}

// 8 EPILOGUE: accumulators → BF16 in shared memory → TMA.
template <GemmConfig kCfg>
FA3_DEV void gemm_store(GemmSmem<kCfg>& smem, const GemmArgs& args,
                        const ptx::Acc<kCfg.tile_n>& acc, u32 wg) {
  const u32 lane = ptx::lane_index(), warp = ptx::warp_index() % 4;
  FA3_UNROLL
  for (int t = 0; t < kCfg.tile_n / 16; ++t) {
    ptx::Vec<u32, 4> packed;
    FA3_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int i = operand16_source(t, r);
      packed[r] = ptx::pack_bf16(acc[i], acc[i + 1]);
    }
    u8* panel = reinterpret_cast<u8*>(smem.c[wg][t / 4]);
    const u32 column_bytes = 32 * (t % 4) + lane / 16 * 16;
    ptx::stmatrix_x4(panel + panel_offset(16 * warp + lane % 16, column_bytes, Swizzle::k128),
                     packed);
  }
  ptx::fence_proxy_async_shared();
  NamedBarrier{1 + wg, 128}.sync();
  if (warp == 0 && ptx::elect_one()) {
    const i32 row =
        GemmConfig::kTileM * static_cast<i32>(ptx::block_index_x()) + 64 * static_cast<i32>(wg);
    const i32 column = kCfg.tile_n * static_cast<i32>(ptx::block_index_y());
    FA3_UNROLL
    for (int panel = 0; panel < kCfg.tile_n / 64; ++panel) {
      ptx::tma_store_2d(args.c, ptx::smem_address(smem.c[wg][panel]), column + 64 * panel, row);
    }
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}

// 7 CONSUMER
template <GemmConfig kCfg>
FA3_DEV void gemm_consume(GemmSmem<kCfg>& smem, const GemmArgs& args, u32 wg) {
  using KMajor = KMajorTile<Swizzle::k128, kCfg.b_bytes()>;
  using MnMajor = MnMajorTile<Swizzle::k128, kCfg.tile_k() * 128>;
  const bool leader = ptx::thread_index() % 128 == 0;
  ptx::Acc<kCfg.tile_n> acc;
  acc.zero();
  GemmRing<kCfg> ring, last;
  FA3_NO_UNROLL
  for (u32 tile = 0; tile < args.tiles_k; ++tile, ring.advance()) {
    smem.full[ring.stage].wait(ring.phase);
    const u8* a = smem.a[ring.stage];
    const u8* b = smem.b[ring.stage];
    if constexpr (kCfg.b_rows_along_n) {
      gemm_step<kCfg>(acc, a, tile_at<MnMajor>(b), wg);
    } else {
      gemm_step<kCfg>(acc, a, tile_at<KMajor>(b), wg);
    }
    smem.empty[last.stage].arrive_if(leader && tile > 0);
    last = ring;
  }
  gemm_wait<0>(acc);
  smem.empty[last.stage].arrive_if(leader);
  gemm_store<kCfg>(smem, args, acc, wg);
}

// 9 KERNEL: maps, barriers, roles.
template <GemmConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void gemm(FA3_GRID_CONSTANT const GemmArgs args) {
  static_assert(kCfg.tile_n % 64 == 0 && kCfg.tile_n <= 256, "gemm: tile_n is 64, 128, 192 or 256");
  static_assert(!kCfg.b_rows_along_n || size_of(kCfg.type) == 2, "gemm: B[k][n] in 16 bits only");
  auto& smem = ptx::smem_as<GemmSmem<kCfg>>();
  const u32 wg = ptx::warpgroup_index();
  if (ptx::thread_index() == 0) {
    ptx::tma_prefetch_map(args.a);
    ptx::tma_prefetch_map(args.b);
    ptx::tma_prefetch_map(args.c);
    for (int s = 0; s < kCfg.stages; ++s) {
      smem.full[s].init(1);
      smem.empty[s].init(GemmConfig::kConsumers);
    }
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (wg == 0) {
    ptx::reg_decrease<24>();
    if (ptx::warp_index() == 0 && ptx::elect_one()) gemm_produce<kCfg>(smem, args);
  } else {
    ptx::reg_increase<240>();
    gemm_consume<kCfg>(smem, args, wg - 1);
  }
}

}  // namespace fa3
