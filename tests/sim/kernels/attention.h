// SPDX-License-Identifier: BSD-3-Clause
// attention.h — one warpgroup's attention loop without its exponential: S = Q·Kᵀ of a tile overlaps
// O += P·V of the tile before, P = S · weight of the key, O halves from tile to tile; and the same
// with one line wrong. P is handed on in registers or, kPInShared, through shared memory.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"

namespace fa3::faulty {

enum class AttentionFault {
  kNone,
  kFullWaitByOneWarp,
  kTryWaitOnce,
  kReleaseWrongOperand,
  kReadScoresBeforeWait,
  kRescaleBeforeWait,
  kOverwriteP,
  kMissingFirstFence,
  kMissingFence,
  kMissingCommit,
  kMissingWeightFence,
  kMissingWarpSync,
  kMissingProxyFence,
  kQueryBeyondTile,
  kVAsKMajor,
  kSwappedOffsets,
};

struct AttentionArgs {
  TensorMap q, k, v;     // boxes of 64 columns × 64 rows, swizzle 128
  const float* weights;  // one per key
  float* o;              // [64][128]
  u32 tiles;
};

struct AttentionSmem {
  alignas(1024) u8 q[64 * 128];
  alignas(1024) u8 k[2][64 * 128];
  alignas(1024) u8 v[2][2 * 64 * 128];  // two panels of 64 columns
  alignas(1024) u8 p[64 * 128];
  alignas(16) float weights[2][64];  // comes and goes with k
  Barrier q_full, k_full[2], k_empty[2], v_full[2], v_empty[2];
  FA3_NAMED(q, k, v, p, weights, q_full, k_full, k_empty, v_full, v_empty)
};

FA3_DEV void attention_produce(AttentionSmem& smem, const AttentionArgs& args) {
  auto ring = Ring<2>::producer();
  smem.q_full.arrive_expect_tx(sizeof(smem.q));
  ptx::tma_load_2d(ptx::smem_address(smem.q), args.q, smem.q_full.address(), 0, 0);
  for (u32 tile = 0; tile < args.tiles; ++tile, ring.advance()) {
    const i32 key = 64 * static_cast<i32>(tile);
    const u32 s = ring.stage;
    smem.k_empty[s].wait(ring.phase);
    smem.k_full[s].arrive_expect_tx(sizeof(smem.k[0]) + sizeof(smem.weights[0]));
    ptx::tma_load_2d(ptx::smem_address(smem.k[s]), args.k, smem.k_full[s].address(), 0, key);
    ptx::bulk_load(ptx::smem_address(smem.weights[s]), args.weights + key, sizeof(smem.weights[0]),
                   smem.k_full[s].address());
    smem.v_empty[s].wait(ring.phase);
    smem.v_full[s].arrive_expect_tx(sizeof(smem.v[0]));
    const u32 v = ptx::smem_address(smem.v[s]);
    ptx::tma_load_2d(v, args.v, smem.v_full[s].address(), 0, key);
    ptx::tma_load_2d(v + 64 * 128, args.v, smem.v_full[s].address(), 64, key);
  }
}

template <AttentionFault kFault, bool kPInShared>
struct AttentionConsumer {
  using F = AttentionFault;
  using Tile = KMajorTile<Swizzle::k128, 64 * 128>;
  AttentionSmem& smem;
  u32 warp = ptx::warp_index() % 4, lane = ptx::lane_index();
  ptx::Acc<64> scores;
  ptx::Acc<128> out;
  ptx::AFrag p[4];
  Ring<2> k, v;

  FA3_DEV explicit AttentionConsumer(AttentionSmem& smem) : smem(smem) {}

  FA3_DEV void wait_full(Barrier& full, u32 phase) {
    if constexpr (kFault == F::kTryWaitOnce) {
      full.try_wait(phase);
    } else if constexpr (kFault == F::kFullWaitByOneWarp) {
      if (warp == 0) full.wait(phase);
    } else {
      full.wait(phase);
    }
  }

  FA3_DEV void multiply_scores() {
    wait_full(smem.k_full[k.stage], k.phase);
    const Tile query = tile_at<Tile>(smem.q).from_row(kFault == F::kQueryBeyondTile ? 32 : 0);
    const Tile key = tile_at<Tile>(smem.k[k.stage]);
    if constexpr (kFault != F::kMissingFirstFence) ptx::wgmma_fence();
    for (u32 s = 0; s < 4; ++s)
      ptx::wgmma_ss<MmaType::kBf16, 64>(scores, query.step(s).bits, key.step(s).bits, s > 0);
    ptx::wgmma_commit();
  }

  FA3_DEV void multiply_values(bool accumulate) {
    wait_full(smem.v_full[v.stage], v.phase);
    constexpr bool kTransposed = kFault != F::kVAsKMajor;
    const u32 leading = kFault == F::kSwappedOffsets ? 1024 : 64 * 128;
    const u32 stride = kFault == F::kSwappedOffsets ? 64 * 128 : 1024;
    const SmemDesc value =
        SmemDesc::make(ptx::smem_address(smem.v[v.stage]), leading, stride, Swizzle::k128);
    if constexpr (kFault != F::kMissingFence) ptx::wgmma_fence();
    for (u32 s = 0; s < 4; ++s) {
      const u64 b = value.advanced(kTransposed ? s * 2048 : s * 32).bits;
      if constexpr (kPInShared) {
        ptx::wgmma_ss<MmaType::kBf16, 128, false, kTransposed>(
            out, tile_at<Tile>(smem.p).step(s).bits, b, accumulate || s > 0);
      } else {
        ptx::wgmma_rs<MmaType::kBf16, 128, kTransposed>(out, p[s], b, accumulate || s > 0);
      }
    }
    if constexpr (kFault != F::kMissingCommit) ptx::wgmma_commit();
  }

  // Scores times the weights of their keys; the stage of K is free then.
  FA3_DEV void weigh() {
    for (int i = 0; i < scores.size(); i += 4) {  // two columns of two rows
      const u32 column = accumulator_place(lane, static_cast<u32>(i)).column;
      const auto weight = ptx::ld_shared(
          reinterpret_cast<const ptx::Vec<float, 2>*>(&smem.weights[k.stage][column]));
      for (int j = 0; j < 4; ++j) scores[i + j] *= weight[j % 2];
    }
    if constexpr (kFault != F::kMissingWeightFence) ptx::fence_proxy_async_shared();
    if constexpr (kFault != F::kMissingWarpSync) ptx::warp_sync();
    smem.k_empty[k.stage].arrive_if(lane == 0);
    k.advance();
  }

  FA3_DEV void hand_on() {
    to_operand16<MmaType::kBf16>(p, scores);
    if constexpr (kPInShared) {
      for (u32 s = 0; s < 4; ++s) {
        const u32 offset =
            panel_offset(16 * warp + lane % 16, 32 * s + lane / 16 * 16, Swizzle::k128);
        ptx::stmatrix_x4(smem.p + offset, {p[s][0], p[s][1], p[s][2], p[s][3]});
      }
      if constexpr (kFault != F::kMissingProxyFence) ptx::fence_proxy_async_shared();
      ptx::warp_sync();  // each warp's rows of A are its own
    }
  }

  FA3_DEV void release_values() {
    ptx::wgmma_wait<0>();
    smem.v_empty[v.stage].arrive_if(lane == 0);
    v.advance();
  }

  FA3_DEV void run(const AttentionArgs& args) {
    smem.q_full.wait(0);
    multiply_scores();
    ptx::wgmma_wait<0>();
    weigh();
    hand_on();
    for (u32 tile = 1; tile < args.tiles; ++tile) {
      multiply_scores();
      multiply_values(tile > 1);
      if constexpr (kFault != F::kReadScoresBeforeWait) ptx::wgmma_wait<1>();
      if constexpr (kFault == F::kReleaseWrongOperand) smem.v_empty[v.stage].arrive_if(lane == 0);
      weigh();
      if constexpr (kFault == F::kOverwriteP) hand_on();
      if constexpr (kFault == F::kRescaleBeforeWait) halve();
      if constexpr (kFault == F::kReleaseWrongOperand) {
        ptx::wgmma_wait<0>();
        v.advance();
      } else {
        release_values();
      }
      if constexpr (kFault != F::kRescaleBeforeWait) halve();
      if constexpr (kFault != F::kOverwriteP) hand_on();
    }
    multiply_values(args.tiles > 1);
    release_values();
    for (int i = 0; i < out.size(); i += 2) {
      const Place place = accumulator_place(32 * warp + lane, static_cast<u32>(i));
      ptx::st_global(reinterpret_cast<ptx::Vec<float, 2>*>(args.o + place.row * 128 + place.column),
                     ptx::Vec<float, 2>{out[i], out[i + 1]});
    }
  }

  FA3_DEV void halve() {
    for (int i = 0; i < out.size(); ++i) out[i] *= 0.5f;
  }
};

template <AttentionFault kFault, bool kPInShared>
FA3_KERNEL(256, 1)
void attention(FA3_GRID_CONSTANT const AttentionArgs args) {
  auto& smem = ptx::smem_as<AttentionSmem>();
  const u32 wg = ptx::warpgroup_index();
  if (ptx::thread_index() == 0) {
    smem.q_full.init(1);
    for (int s = 0; s < 2; ++s) {
      smem.k_full[s].init(1);
      smem.v_full[s].init(1);
      smem.k_empty[s].init(4);  // lane 0 of each consumer warp
      smem.v_empty[s].init(4);
    }
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (wg == 0) {
    ptx::reg_decrease<24>();
    if (ptx::warp_index() == 0 && ptx::elect_one()) attention_produce(smem, args);
  } else {
    AttentionConsumer<kFault, kPInShared>(smem).run(args);
  }
}

}  // namespace fa3::faulty
