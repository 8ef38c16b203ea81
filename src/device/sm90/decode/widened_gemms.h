// SPDX-License-Identifier: BSD-3-Clause
// widened_gemms.h — both GEMMs of a KV tile of E4M3, whose operand A, keys of K or columns of V, is
// widened to F16 in registers (widen.h). Of few packed rows by mma.sync, each warp for its 16 rows;
// of many by wgmma.
#pragma once

#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/ptx/matrix.h"
#include "device/ptx/mma.h"
#include "device/ptx/registers.h"
#include "device/sm90/decode/config.h"
#include "device/sm90/decode/widen.h"

namespace fa3::sm90 {

// Pᵀ as operand B, K-major without a swizzle: matrices of 8 rows by 8 keys, those of the same keys
// next to each other.
template <int kRows>
struct PTile {
  static constexpr bool kTransposed = false;
  static constexpr u32 kMatrix = 128, kKeys8 = kRows / 8 * kMatrix;
  SmemDesc base;

  FA3_HD static constexpr PTile at(u32 address) {
    return {SmemDesc::make(address, kKeys8, kMatrix, Swizzle::kNone)};
  }
  FA3_HD constexpr SmemDesc step(u32 s) const { return base.advanced(2 * s * kKeys8); }
};

// Nothing where tiles have 16 bits.
template <DecodeConfig kCfg>
struct WidenedGemms {
  FA3_DEV WidenedGemms(u32, u32) {}
};

template <DecodeConfig kCfg>
requires(kCfg.kv8) struct WidenedGemms<kCfg> {
  static constexpr int kN = kCfg.consumer_rows();
  using KTile = WidenedTile<kCfg.k_tile()>;
  using VTile = WidenedTile<kCfg.v_tile()>;
  using Scores = ptx::Acc<kN>[kCfg.key_blocks()];
  using Output = ptx::Acc<kN>[kCfg.o_blocks()];
  using Values = typename VTile::Loaded[kCfg.o_blocks()];  // as they lie in shared memory

  u32 lane;
  KTile k_tile;
  VTile v_tile;
  ptx::AFrag in_flight[kCfg.by_warps() ? 1 : kCfg.o_blocks()][VTile::kValueSteps];

  FA3_DEV WidenedGemms(u32 warp, u32 lane) : lane(lane), k_tile(warp, lane), v_tile(warp, lane) {}

  // Sᵀ = K·Qᵀ, complete. q: Q, also as operand B.
  template <class Q>
  FA3_DEV void scores(Scores& s, const u8* k, const u8* q, const Q& operand) const {
    if constexpr (kCfg.by_warps())
      scores_by_warp(s, k, q);
    else
      scores_by_wgmma(s, k, operand);
  }
  FA3_DEV void load(Values& values, const u8* v) const {
    FA3_UNROLL
    for (u32 m = 0; m < kCfg.o_blocks(); ++m) v_tile.load_values(values[m], v, m);
  }
  // Oᵀ += Vᵀ·Pᵀ, by wgmma in flight until hold(). p: P, also as operand B.
  FA3_DEV void add(Output& o, const Values& values, const u8* p, const PTile<kN>& operand) {
    if constexpr (kCfg.by_warps())
      add_by_warp(o, values, p);
    else
      add_by_wgmma(o, values, operand);
  }
  // P·V in flight is complete.
  FA3_DEV void hold(Output& o) {
    if constexpr (!kCfg.by_warps()) {
      gemm_wait<0>(o[0]);
      FA3_UNROLL
      for (int m = 0; m < kCfg.o_blocks(); ++m) {
        ptx::fence_regs(o[m]);
        FA3_UNROLL
        for (int i = 0; i < VTile::kValueSteps; ++i) ptx::fence_regs(in_flight[m][i]);
      }
    }
  }

 private:
  FA3_DEV void scores_by_wgmma(Scores& s, const u8* k, const auto& q) const {
    ptx::AFrag keys[kCfg.key_blocks()][KTile::kKeySteps];
    FA3_UNROLL
    for (u32 b = 0; b < kCfg.key_blocks(); ++b) {
      k_tile.keys(keys[b], k, b);
      gemm_rs<MmaType::kF16>(s[b], keys[b], q, kOverwrite);
    }
    gemm_wait<0>(s[0]);
    FA3_UNROLL
    for (int b = 0; b < kCfg.key_blocks(); ++b) {
      ptx::fence_regs(s[b]);
      FA3_UNROLL
      for (int i = 0; i < KTile::kKeySteps; ++i) ptx::fence_regs(keys[b][i]);
    }
  }
  FA3_DEV void scores_by_warp(Scores& s, const u8* k, const u8* q) const {
    constexpr TileLayout kTile = kCfg.q_tile();
    constexpr u32 kWidth = static_cast<u32>(kTile.panel_width());
    const u32 of_lane = panel_offset(lane % 8, lane / 8 * 16, kTile.swizzle());
    FA3_UNROLL
    for (u32 b = 0; b < kCfg.key_blocks(); ++b) {
      ptx::AFrag keys[KTile::kKeySteps];
      k_tile.keys(keys, k, b);
      s[b].zero();
      FA3_UNROLL
      for (u32 c = 0; c < kCfg.head_dim_qk / 32; ++c) {
        const u32 bytes = 64 * c;
        const u8* const at = q + bytes / kWidth * kTile.panel_bytes() + (of_lane ^ bytes % kWidth);
        FA3_UNROLL
        for (u32 j = 0; j < kN / 8; ++j) {
          const ptx::Vec<u32, 4> x = ptx::ldmatrix_x4(at + 8 * kWidth * j);
          FA3_UNROLL
          for (u32 h = 0; h < 2; ++h)
            ptx::mma_16x8x16<MmaType::kF16>(s[b], static_cast<int>(j), keys[2 * c + h], x[2 * h],
                                            x[2 * h + 1]);
        }
      }
    }
  }
  FA3_DEV void add_by_wgmma(Output& o, const Values& values, const PTile<kN>& p) {
    FA3_UNROLL
    for (u32 m = 0; m < kCfg.o_blocks(); ++m) {
      FA3_UNROLL
      for (int i = 0; i < VTile::kValueLoads; ++i)
        VTile::values(in_flight[m][2 * i], in_flight[m][2 * i + 1], values[m][i]);
      gemm_rs<MmaType::kF16>(o[m], in_flight[m], p, kAccumulate);
    }
  }
  FA3_DEV void add_by_warp(Output& o, const Values& values, const u8* p) const {
    const u8* const of_lane = p + lane / 8 * PTile<kN>::kKeys8 + lane % 8 * 16;
    FA3_UNROLL
    for (u32 i = 0; i < VTile::kValueLoads; ++i) {
      ptx::AFrag a[kCfg.o_blocks()][2];
      FA3_UNROLL
      for (u32 m = 0; m < kCfg.o_blocks(); ++m) VTile::values(a[m][0], a[m][1], values[m][i]);
      FA3_UNROLL
      for (u32 j = 0; j < kN / 8; ++j) {
        const ptx::Vec<u32, 4> x =
            ptx::ldmatrix_x4(of_lane + 4 * i * PTile<kN>::kKeys8 + j * PTile<kN>::kMatrix);
        FA3_UNROLL
        for (u32 m = 0; m < kCfg.o_blocks(); ++m) {
          FA3_UNROLL
          for (int h = 0; h < 2; ++h)
            ptx::mma_16x8x16<MmaType::kF16>(o[m], static_cast<int>(j), a[m][h], x[2 * h],
                                            x[2 * h + 1]);
        }
      }
    }
  }
};

}  // namespace fa3::sm90
