// SPDX-License-Identifier: BSD-3-Clause
// hadamard.h — H·S as a GEMM: rows of 16-bit x are A, in registers; B is the transform with the
// signs of its rows, in shared memory; its entries are powers of two, so that products are exact.
//
//   Step s of K, slot k of 16, holds column 32·⌊s/2⌋ + 8·t + 4·(s % 2) + 2·⌊k/8⌋ + k % 2 with
//   t = ⌊k/2⌋ % 4: a lane's 16 bytes of a row are its slots of two steps. Columns of the result
//   stand in the same order.
#pragma once

#include "device/hopper/gemm.h"
#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/sm90/quantize/turn.h"

namespace fa3::sm90 {

// The column that slot `slot` of K, or column `slot` of the result, stands for.
FA3_HD constexpr int column_of_slot(int slot) {
  const int s = slot / 16, k = slot % 16;
  return 32 * (s / 2) + 8 * (k / 2 % 4) + 4 * (s % 2) + 2 * (k / 8) + k % 2;
}

// The largest power of two that is at most 1/√hadamard, as an exponent below 0.
FA3_HD constexpr int unit_exponent(int hadamard) {
  int exponent = 0;
  while (hadamard >= 4) ++exponent, hadamard /= 4;
  return hadamard == 1 ? exponent : exponent + 1;
}

// Turns two rows of a thread: `first + row(0)` and `first + row(1)` of a sequence.
template <TurnConfig kCfg>
class GemmTurner {
 public:
  static constexpr int kValues = kCfg.values();
  static constexpr int kColumns = kCfg.gemm_columns();
  static constexpr MmaType kType = kCfg.x == FloatType::kF16 ? MmaType::kF16 : MmaType::kBf16;
  using Operand = KMajorOperand<kCfg.gemm_tile()>;

  // All threads of the CTA; they meet.
  FA3_DEV GemmTurner(const QuantizeArgs& args, u8* tiles) : args_(args) {
    fill(tiles);
    ptx::fence_proxy_async_shared();
    ptx::cta_sync();
    operand_ = tile_at<Operand>(tiles);
  }

  FA3_DEV static i32 row(int r) {
    const i32 thread = static_cast<i32>(ptx::thread_index());
    return thread / 32 * 16 + thread % 32 / 4 + 8 * r;
  }

  // Rows that do not count are zeros.
  FA3_DEV void turn(const QuantizePlace& place, i32 first, float (&y)[2][kValues]) const {
    ptx::AFrag a[kCfg.gemms()][kColumns / 16];
    load(place, first, a);
    ptx::Acc<kColumns> acc[kCfg.gemms()];
    FA3_UNROLL
    for (int g = 0; g < kCfg.gemms(); ++g)
      gemm_rs<kType>(acc[g], a[g], operand_.after(static_cast<u32>(g * kCfg.gemm_tile().bytes())),
                     kOverwrite);
    FA3_UNROLL
    for (int g = 0; g < kCfg.gemms(); ++g) {
      gemm_wait<0>(acc[g]);
      FA3_UNROLL
      for (int i = 0; i < kColumns / 2; ++i)
        y[i / 2 % 2][kColumns / 4 * g + 4 * (i / 8) + 2 * (i / 4 % 2) + i % 2] = acc[g][i];
    }
    FA3_UNROLL
    for (int half = kColumns / 4; 4 * half < kCfg.hadamard; half *= 2) {
      RowTurner<kCfg>::add_halves(y[0], half);
      RowTurner<kCfg>::add_halves(y[1], half);
    }
    constexpr float kRest =
        kCfg.hadamard == 1 << 2 * unit_exponent(kCfg.hadamard) ? 1.f : 0x1.6a09e6p0f;
    if constexpr (kRest != 1.f) {
      FA3_UNROLL
      for (int r = 0; r < 2; ++r) {
        FA3_UNROLL
        for (int v = 0; v < kValues; ++v) y[r][v] *= kRest;
      }
    }
  }

 private:
  FA3_DEV void load(const QuantizePlace& place, i32 first,
                    ptx::AFrag (&a)[kCfg.gemms()][kColumns / 16]) const {
    ptx::Vec<u32, 4> words[2][kCfg.pieces()];
    FA3_UNROLL
    for (int r = 0; r < 2; ++r) {
      const i32 i = first + row(r);
      const bool counts = i < place.rows.used;
      const u8* const from = static_cast<const u8*>(args_.x.data) +
                             2 * (counts ? place.at(args_.x, i) + 8 * lane_of<kCfg>() : 0);
      FA3_UNROLL
      for (int j = 0; j < kCfg.pieces(); ++j) {
        words[r][j] = {{0, 0, 0, 0}};
        if (counts)
          words[r][j] = ptx::ld_global_nc(reinterpret_cast<const ptx::Vec<u32, 4>*>(from + 64 * j));
      }
    }
    FA3_UNROLL
    for (int s = 0; s < kCfg.head_dim / 16; ++s) {
      FA3_UNROLL
      for (int w = 0; w < 4; ++w)
        a[s / (kColumns / 16)][s % (kColumns / 16)][w] = words[w % 2][s / 2][2 * (s % 2) + w / 2];
    }
  }

  // B, each GEMM's with the signs of its columns.
  FA3_DEV void fill(u8* tiles) const {
    constexpr TileLayout kTile = kCfg.gemm_tile();
    constexpr int kPairs = kColumns / 2;
    constexpr int kExponent = unit_exponent(kCfg.hadamard);
    constexpr u32 kUnit = kType == MmaType::kF16 ? (15 - kExponent) << 10 : (127 - kExponent) << 7;
    for (int at = static_cast<int>(ptx::thread_index()); at < kCfg.gemms() * kColumns * kPairs;
         at += TurnConfig::kThreads) {
      const int gemm = at / (kColumns * kPairs), n = at / kPairs % kColumns, k = at % kPairs * 2;
      const int to = column_of_slot(n), from = column_of_slot(k);
      const int column = kColumns * gemm + from;
      u32 two = args_.sign[column / 8][column % 8 / 2];
      FA3_UNROLL
      for (int e = 0; e < 2; ++e) {
        two ^= (kUnit | parity((from + e) & to) << 15) << (16 * e);
      }
      const u32 byte = static_cast<u32>(2 * k), width = static_cast<u32>(kTile.panel_width());
      const u32 offset = static_cast<u32>(gemm * kTile.bytes()) +
                         byte / width * static_cast<u32>(kTile.panel_bytes()) +
                         panel_offset(static_cast<u32>(n), byte % width, kTile.swizzle());
      ptx::st_shared(reinterpret_cast<u32*>(tiles + offset), two);
    }
  }
  FA3_DEV static u32 parity(int bits) {
    u32 x = static_cast<u32>(bits);
    x ^= x >> 4;
    x ^= x >> 2;
    x ^= x >> 1;
    return x & 1;
  }

  const QuantizeArgs& args_;
  Operand operand_;
};

template <TurnConfig kCfg, bool kByGemm = kCfg.by_gemm()>
struct TurnerOf {
  using Type = RowTurner<kCfg>;
};
template <TurnConfig kCfg>
struct TurnerOf<kCfg, true> {
  using Type = GemmTurner<kCfg>;
};
template <TurnConfig kCfg>
using Turner = typename TurnerOf<kCfg>::Type;

}  // namespace fa3::sm90
