// SPDX-License-Identifier: BSD-3-Clause
// attention.cuh — O = softmax(Q·Kᵀ)·V of whole tiles in BF16, head_dim 128: the schedule of a
// forward kernel without masks, for conformance and for timing the simulator.
// 1 CONTRACT    Q[q][128], K[kv][128], V[kv][128], O[q][128], lse[q]; q and kv multiples of 128.
//               scale_log2e = scale · log2 e. Maps: boxes of 64 columns × 128 rows (O: × 64 rows)
//               with swizzle 128. Grid: tiles of q.
// 2 ROLES       wg 0: producer, one thread issues TMA · wg 1, 2: consumers, 64 rows of Q each
// 3 BARRIERS    name        count   tx bytes   arrives                     waits
//               q_full      1       Q tile     producer, TMA               consumers
//               k_full[s]   1       K tile     producer, TMA               consumers
//               k_empty[s]  2       –          thread 0 of each consumer   producer
//               v_full[s], v_empty[s]          as K
//               1 + wg      128     (named)    threads of consumer wg      the same: O is written
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/descriptor.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/math.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/types.h"

namespace fa3 {

struct AttentionArgs {
  TensorMap q, k, v, o;
  float* lse;
  u32 tiles_kv;
  float scale_log2e;
};

struct AttentionSizes {
  static constexpr int kTile = 128, kHeadDim = 128, kStages = 2, kThreads = 384;
  static constexpr u32 kTileBytes = kTile * kHeadDim * 2, kPanelBytes = kTile * 128;
};

// 4 SMEM
struct AttentionSmem {
  static constexpr int kStages = AttentionSizes::kStages;
  static constexpr u32 kTileBytes = AttentionSizes::kTileBytes;

  alignas(1024) u8 q[kTileBytes];  // [panel of 64 columns][row][128 bytes], as k, v and o
  alignas(1024) u8 k[kStages][kTileBytes];
  alignas(1024) u8 v[kStages][kTileBytes];
  alignas(1024) u8 o[2][kTileBytes / 2];  // per consumer
  Barrier q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  FA3_NAMED(q, k, v, o, q_full, k_full, k_empty, v_full, v_empty)
};

using AttentionRing = Ring<AttentionSizes::kStages>;

FA3_DEV void attention_load(u8* to, const TensorMap& map, Barrier& full, i32 row) {
  full.arrive_expect_tx(AttentionSizes::kTileBytes);
  FA3_UNROLL
  for (u32 panel = 0; panel < 2; ++panel) {
    ptx::tma_load_2d(ptx::smem_address(to) + panel * AttentionSizes::kPanelBytes, map,
                     full.address(), 64 * static_cast<i32>(panel), row);
  }
}

// 5 PRODUCER
FA3_DEV void attention_produce(AttentionSmem& smem, const AttentionArgs& args) {
  constexpr int kTile = AttentionSizes::kTile;
  attention_load(smem.q, args.q, smem.q_full, kTile * static_cast<i32>(ptx::block_index_x()));
  auto ring = AttentionRing::producer();
  FA3_NO_UNROLL
  for (u32 tile = 0; tile < args.tiles_kv; ++tile, ring.advance()) {
    const i32 row = kTile * static_cast<i32>(tile);
    smem.k_empty[ring.stage].wait(ring.phase);
    attention_load(smem.k[ring.stage], args.k, smem.k_full[ring.stage], row);
    smem.v_empty[ring.stage].wait(ring.phase);
    attention_load(smem.v[ring.stage], args.v, smem.v_full[ring.stage], row);
  }
}

// A thread's two rows: maximum and sum so far.
struct AttentionRows {
  float max[2], sum[2];
};

// 6 STEP: P = exp2(S·scale − max) in place; O is rescaled to the new maximum.
FA3_DEV void attention_softmax(ptx::Acc<128>& s, ptx::Acc<128>& o, AttentionRows& rows,
                               float scale) {
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    float max = rows.max[h];
    FA3_UNROLL
    for (int i = 2 * h; i < 64; i += 4) {
      max = ptx::max(max, ptx::max(s[i], s[i + 1]));
    }
    max = ptx::max(max, ptx::shfl_xor(max, 1));
    max = ptx::max(max, ptx::shfl_xor(max, 2));
    const float rescale = ptx::ex2((rows.max[h] - max) * scale);
    const float offset = max * scale;
    float sum = rows.sum[h] * rescale;
    FA3_UNROLL
    for (int i = 2 * h; i < 64; i += 4) {
      FA3_UNROLL
      for (int c = 0; c < 2; ++c) {
        const float p = ptx::ex2(s[i + c] * scale - offset);
        s[i + c] = p;
        sum += p;
        o[i + c] *= rescale;
      }
    }
    rows.max[h] = max;
    rows.sum[h] = sum;
  }
}

// 8 EPILOGUE: O / sum → BF16 in shared memory → TMA.
FA3_DEV void attention_store(AttentionSmem& smem, const AttentionArgs& args, ptx::Acc<128>& o,
                             AttentionRows& rows, u32 wg) {
  const u32 lane = ptx::lane_index(), warp = ptx::warp_index() % 4;
  const u32 first_row = 128 * ptx::block_index_x() + 64 * wg;
  float inverse[2];
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    float sum = rows.sum[h];
    sum += ptx::shfl_xor(sum, 1);
    sum += ptx::shfl_xor(sum, 2);
    inverse[h] = 1.f / sum;
    if (lane % 4 == 0) {
      const float lse = (rows.max[h] * args.scale_log2e + ptx::lg2(sum)) * 0.69314718f;
      ptx::st_global(args.lse + first_row + 16 * warp + lane / 4 + 8 * h, lse);
    }
  }
  FA3_UNROLL
  for (int t = 0; t < 8; ++t) {
    ptx::Vec<u32, 4> packed;
    FA3_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int i = operand16_source(t, r);
      packed[r] = ptx::pack_bf16(o[i] * inverse[r % 2], o[i + 1] * inverse[r % 2]);
    }
    u8* panel = smem.o[wg] + t / 4 * (64 * 128);
    const u32 column_bytes = 32 * (t % 4) + lane / 16 * 16;
    ptx::stmatrix_x4(panel + panel_offset(16 * warp + lane % 16, column_bytes, Swizzle::k128),
                     packed);
  }
  ptx::fence_proxy_async_shared();
  NamedBarrier{1 + wg, 128}.sync();
  if (warp == 0 && ptx::elect_one()) {
    FA3_UNROLL
    for (u32 panel = 0; panel < 2; ++panel) {
      ptx::tma_store_2d(args.o, ptx::smem_address(smem.o[wg]) + panel * 64 * 128,
                        64 * static_cast<i32>(panel), static_cast<i32>(first_row));
    }
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
  }
}

// 7 CONSUMER
FA3_DEV void attention_consume(AttentionSmem& smem, const AttentionArgs& args, u32 wg) {
  using KMajor = KMajorTile<Swizzle::k128, AttentionSizes::kPanelBytes>;
  using MnMajor = MnMajorTile<Swizzle::k128, AttentionSizes::kPanelBytes>;
  const bool leader = ptx::thread_index() % 128 == 0;
  ptx::Acc<128> s, o;
  ptx::AFrag p[8];
  AttentionRows rows{{-1e30f, -1e30f}, {0.f, 0.f}};
  o.zero();
  AttentionRing ring;
  smem.q_full.wait(0);
  const auto q = tile_at<KMajor>(smem.q).from_row(64 * wg);
  FA3_NO_UNROLL
  for (u32 tile = 0; tile < args.tiles_kv; ++tile, ring.advance()) {
    smem.k_full[ring.stage].wait(ring.phase);
    gemm_ss<MmaType::kBf16, 8>(s, q, tile_at<KMajor>(smem.k[ring.stage]), kOverwrite);
    gemm_wait<0>(s);
    smem.k_empty[ring.stage].arrive_if(leader);
    attention_softmax(s, o, rows, args.scale_log2e);
    to_operand16<MmaType::kBf16>(p, s);
    smem.v_full[ring.stage].wait(ring.phase);
    gemm_rs<MmaType::kBf16>(o, p, tile_at<MnMajor>(smem.v[ring.stage]), kAccumulate);
    gemm_wait<0>(o);
    smem.v_empty[ring.stage].arrive_if(leader);
  }
  attention_store(smem, args, o, rows, wg);
}

// 9 KERNEL
FA3_KERNEL(AttentionSizes::kThreads, 1)
void attention(FA3_GRID_CONSTANT const AttentionArgs args) {
  auto& smem = ptx::smem_as<AttentionSmem>();
  const u32 wg = ptx::warpgroup_index();
  if (ptx::thread_index() == 0) {
    smem.q_full.init(1);
    for (int s = 0; s < AttentionSizes::kStages; ++s) {
      smem.k_full[s].init(1);
      smem.v_full[s].init(1);
      smem.k_empty[s].init(2);
      smem.v_empty[s].init(2);
    }
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (wg == 0) {
    ptx::reg_decrease<24>();
    if (ptx::warp_index() == 0 && ptx::elect_one()) attention_produce(smem, args);
  } else {
    ptx::reg_increase<240>();
    attention_consume(smem, args, wg - 1);
  }
}

}  // namespace fa3
