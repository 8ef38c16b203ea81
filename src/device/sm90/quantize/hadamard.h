// SPDX-License-Identifier: BSD-3-Clause
// hadamard.h — H·S as a GEMM: A is 64 rows of 16-bit x for each warpgroup, of a tile that TMA has
// loaded; B is the transform with the signs of its rows; its entries are powers of two, so that
// products are exact.
// BARRIERS  full[stage]: count 1, a tile's bytes. A stage is loaded again when all warps have
//           waited for their GEMMs on it.
#pragma once

#include "device/hopper/barrier.h"
#include "device/hopper/gemm.h"
#include "device/hopper/ring.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/tma.h"
#include "device/sm90/quantize/turn.h"

namespace fa3::sm90 {

// The column that column n of the result stands for: a lane's registers, which hold columns 2t,
// 2t + 1 of each 8, are then 8 neighbours of each 32.
FA3_HD constexpr int column_of(int n) {
  const int s = n / 16, k = n % 16;
  return 32 * (s / 2) + 8 * (k / 2 % 4) + 4 * (s % 2) + 2 * (k / 8) + k % 2;
}

// The largest power of two that is at most 1/√hadamard, as an exponent below 0.
FA3_HD constexpr int unit_exponent(int hadamard) {
  int exponent = 0;
  while (hadamard >= 4) ++exponent, hadamard /= 4;
  return hadamard == 1 ? exponent : exponent + 1;
}

template <TurnConfig kCfg, int kWarpgroups>
struct GemmSmem {
  alignas(1024) u8 b[kCfg.gemm_bytes()];
  alignas(1024) u8 x[kCfg.stages()][kCfg.x_tile(kWarpgroups).bytes()];
  Barrier full[kCfg.stages()];
  FA3_NAMED(b, x, full)
};

// Turns two rows of a thread, row(0) and row(1) from the first of a turn on.
template <TurnConfig kCfg, int kWarpgroups = 1>
class GemmTurner {
 public:
  static constexpr int kValues = kCfg.values();
  static constexpr int kColumns = kCfg.gemm_columns();
  static constexpr int kStages = kCfg.stages();
  // What the entries of B, powers of two, are less than 1/√hadamard.
  static constexpr float kUnit =
      kCfg.hadamard == 1 << 2 * unit_exponent(kCfg.hadamard) ? 1.f : 0x1.6a09e6p0f;
  static constexpr MmaType kType = kCfg.x == FloatType::kF16 ? MmaType::kF16 : MmaType::kBf16;
  using Smem = GemmSmem<kCfg, kWarpgroups>;
  // WORKAROUND(g++ 12): KMajorOperand ends in an internal error here.
  static constexpr TileLayout kX = kCfg.x_tile(kWarpgroups), kB = kCfg.gemm_tile();
  using A = KMajorTile<kX.swizzle(), static_cast<u32>(kX.panel_bytes())>;
  using B = KMajorTile<kB.swizzle(), static_cast<u32>(kB.panel_bytes())>;

  // All threads of the CTA.
  FA3_DEV GemmTurner(const QuantizeArgs& args, Smem& smem) : args_(args), smem_(smem) {
    if (ptx::thread_index() == 0) {
      FA3_UNROLL
      for (int s = 0; s < kStages; ++s) smem.full[s].init(1);
      ptx::fence_mbar_init();
    }
    // The warpgroup's rows of each panel.
    const u32 warpgroup = kWarpgroups == 1 ? 0 : ptx::shfl_idx(ptx::thread_index() / kWgThreads, 0);
    x_ = tile_at<A>(smem.x).after(warpgroup * static_cast<u32>(kX.panel_bytes() / kWarpgroups));
    b_ = tile_at<B>(smem.b);
  }

  FA3_DEV static i32 row(int r) {
    const i32 thread = static_cast<i32>(ptx::thread_index());
    return thread / 32 * 16 + thread % 32 / 4 + 8 * r;
  }

  // The first loads, and B while they are under way. All threads; they meet.
  FA3_DEV void start(const QuantizePlace& place, const RowWalk& walk) {
    if (walk.first(0) >= place.rows.used) return;  // there will be no turn
    FA3_UNROLL
    for (i32 n = 0; n < kStages; ++n) load(place, walk, n, static_cast<u32>(n));
    fill();
    ptx::fence_proxy_async_shared();
    ptx::cta_sync();
  }

  // Turn n, whose first row counts: all, one after another; in units of kUnit. Rows that do not
  // count are what lies there.
  FA3_DEV void turn(const QuantizePlace& place, const RowWalk& walk, i32 n,
                    float (&y)[2][kValues]) {
    ptx::Acc<kColumns> acc[kCfg.gemms()];
    multiply<false>(place, walk, n, acc);
    FA3_UNROLL
    for (int g = 0; g < kCfg.gemms(); ++g) {
      FA3_UNROLL
      for (int i = 0; i < kColumns / 2; ++i)
        y[i / 2 % 2][kColumns / 4 * g + 4 * (i / 8) + 2 * (i / 4 % 2) + i % 2] = acc[g][i];
    }
    FA3_UNROLL
    for (int half = kColumns / 4; 4 * half < kCfg.hadamard; half *= 2) {
      add_halves(y[0], half);
      add_halves(y[1], half);
    }
  }

  // The same with columns as rows: row m of y[g] is column kColumns·g + column_of(m).
  FA3_DEV void turn_columns(const QuantizePlace& place, const RowWalk& walk, i32 n,
                            ptx::Acc<kColumns> (&y)[kCfg.gemms()]) {
    static_assert(kColumns == kWgRows);
    multiply<true>(place, walk, n, y);
    FA3_UNROLL
    for (int half = 1; kColumns * half < kCfg.hadamard; half *= 2) {
      FA3_UNROLL
      for (int g = 0; g < kCfg.gemms(); ++g) {
        if ((g & half) != 0) continue;
        FA3_UNROLL
        for (int i = 0; i < kColumns / 2; ++i) {
          const float a = y[g][i], b = y[g + half][i];
          y[g][i] = a + b, y[g + half][i] = a - b;
        }
      }
    }
  }

 private:
  // Turn n as it is in the ring, times B, or transposed.
  template <bool kTransposed>
  FA3_DEV void multiply(const QuantizePlace& place, const RowWalk& walk, i32 n,
                        ptx::Acc<kColumns> (&acc)[kCfg.gemms()]) {
    smem_.full[ring_.stage].wait(ring_.phase);
    FA3_UNROLL
    for (int g = 0; g < kCfg.gemms(); ++g) {
      const A a = x_.after(ring_.stage * static_cast<u32>(kX.bytes()))
                      .from_step(static_cast<u32>(g * kColumns / 16));
      const B b = b_.after(static_cast<u32>(g * kCfg.gemm_tile().bytes()));
      if constexpr (kTransposed) {
        gemm_ss<kType, kColumns / 16>(acc[g], b, a, kOverwrite);
      } else {
        gemm_ss<kType, kColumns / 16>(acc[g], a, b, kOverwrite);
      }
    }
    FA3_UNROLL
    for (int g = 0; g < kCfg.gemms(); ++g) gemm_wait<0>(acc[g]);
    // All warps have: the stage is free. And what they have stored to shared memory before their
    // first turn is there: means; what they have read of it is free: maxima of blocks.
    ptx::cta_sync();  // sim:spare(warps)
    load(place, walk, n + kStages, ring_.stage);
    ring_.advance();
  }

  FA3_DEV void load(const QuantizePlace& place, const RowWalk& walk, i32 n, u32 stage) {
    const i32 first = walk.first(n);
    if (ptx::thread_index() != 0 || first >= place.rows.used) return;
    Barrier& full = smem_.full[stage];
    full.arrive_expect_tx(static_cast<u32>(kX.bytes()));
    const i32 batch = args_.axis.cu_seqlens == nullptr ? place.b : 0;
    FA3_UNROLL
    for (i32 panel = 0; panel < kX.panels(); ++panel)
      ptx::tma_load_4d(ptx::smem_address(smem_.x[stage] + panel * kX.panel_bytes()), args_.x_map,
                       full.address(), kX.panel_columns() * panel, place.rows.begin + first,
                       place.head, batch, ptx::L2Hint::kNormal);
  }

  // B, each GEMM's with the signs of its columns: B[column][k] has the sign of parity(k & column).
  // A thread fills 8 neighbours of K, k = 8·chunk + j: that is parity(8·chunk & column), one for
  // all of them, xor parity(j & column), which the last three bits of column decide.
  FA3_DEV void fill() const {
    constexpr TileLayout kTile = kCfg.gemm_tile();
    constexpr int kChunks = kColumns / 8;
    constexpr int kExponent = unit_exponent(kCfg.hadamard);
    constexpr u32 kOne = kType == MmaType::kF16 ? (15 - kExponent) << 10 : (127 - kExponent) << 7;
    const u32 thread = ptx::thread_index(), chunk = thread % kChunks;
    static_assert(kTile.panels() == 1);
    FA3_UNROLL
    for (int gemm = 0; gemm < kCfg.gemms(); ++gemm) {
      ptx::Vec<u32, 4> signs = args_.sign[kChunks * gemm + static_cast<int>(chunk)];
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) signs[i] ^= kOne | kOne << 16;
      FA3_NO_UNROLL
      for (u32 n = thread / kChunks; n < kColumns; n += kWarpgroups * kWgThreads / kChunks) {
        const u32 to = static_cast<u32>(column_of(static_cast<int>(n)));
        const u32 first = parity(8 * chunk & to);
        const u32 two = (first << 15 | first << 31) ^ (to & 1) << 31;  // entries 0 and 1
        const u32 second = (to & 2) << 14 | (to & 2) << 30;
        const u32 fourth = (to & 4) << 13 | (to & 4) << 29;
        const u32 offset =
            static_cast<u32>(gemm * kTile.bytes()) + panel_offset(n, 16 * chunk, kTile.swizzle());
        ptx::st_shared(
            reinterpret_cast<ptx::Vec<u32, 4>*>(smem_.b + offset),
            ptx::Vec<u32, 4>{{signs[0] ^ two, signs[1] ^ two ^ second, signs[2] ^ two ^ fourth,
                              signs[3] ^ two ^ second ^ fourth}});
      }
    }
  }
  FA3_DEV static u32 parity(u32 x) {
    x ^= x >> 4;
    x ^= x >> 2;
    x ^= x >> 1;
    return x & 1;
  }

  const QuantizeArgs& args_;
  Smem& smem_;
  A x_;
  B b_;
  Ring<kStages> ring_;
};

template <TurnConfig kCfg, int kWarpgroups, bool kByGemm = kCfg.by_gemm()>
struct TurnerOf {
  using Type = RowTurner<kCfg>;
};
template <TurnConfig kCfg, int kWarpgroups>
struct TurnerOf<kCfg, kWarpgroups, true> {
  using Type = GemmTurner<kCfg, kWarpgroups>;
};
template <TurnConfig kCfg, int kWarpgroups = 1>
using Turner = typename TurnerOf<kCfg, kWarpgroups>::Type;

}  // namespace fa3::sm90
