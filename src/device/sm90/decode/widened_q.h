// SPDX-License-Identifier: BSD-3-Clause
// widened_q.h — packed rows of Q as F16, in the order of columns that E4M3 keys want (widen.h). F16
// and E4M3 stay what they are. A BF16 row is multiplied by a power of two that brings its greatest
// number to [2^14, 2^15), where F16 has more digits of it than BF16: what is then lost is below
// 2^−38 of that. Scores are multiplied by the inverse.
#pragma once

#include "device/hopper/operand.h"
#include "device/hopper/swizzle.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/vec.h"
#include "device/ptx/warp.h"
#include "device/sm90/decode/load_q.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/widen.h"

namespace fa3::sm90 {

// A power of two and its inverse.
struct RowPower {
  float factor = 1.f, inverse = 1.f;

  // For a row whose greatest magnitude, a BF16 number, has these bits. Inf and NaN stay so.
  FA3_HD static RowPower of_bf16(u32 most) {
    const i32 exponent = min(static_cast<i32>(most >> 7), 254);
    const i32 power = min(127 + 14 - exponent, 126);
    return {power_of_two(power), power_of_two(-power)};
  }

 private:
  FA3_HD static float power_of_two(i32 power) {
    return ptx::bits_as<float>(static_cast<u32>(power + 127) << 23);
  }
};

// Packed rows first, first + 1, … of a unit, by the threads of a consumer: a thread has 8 columns
// of a row, and adjacent lanes have all of one.
template <DecodeConfig kCfg>
struct WidenedQ {
  static constexpr u32 kChunks = kCfg.head_dim_qk / 8;
  static constexpr u32 kLanes = kChunks <= 8 ? 8 : kChunks <= 16 ? 16 : 32;  // of a row
  static constexpr u32 kRows = kCfg.consumer_rows();
  static constexpr u32 kAtATime = fa3::max(kRows * kLanes / kWgThreads / 2, 1u);
  static_assert(kRows * kLanes % (kAtATime * kWgThreads) == 0 || kAtATime == 1);

  DecodeConsumerSmem<kCfg>& own;
  const DecodeArgs& args;
  const DecodeUnit& unit;

  FA3_DEV void load(u32 first, u32 thread) const {
    FA3_NO_UNROLL
    for (u32 begin = 0; begin < kRows * kLanes; begin += kAtATime * kWgThreads) {
      QChunk x[kAtATime];
      FA3_UNROLL
      for (u32 u = 0; u < kAtATime; ++u) {
        const u32 at = begin + u * kWgThreads + thread;
        x[u] = QChunk{{0, 0, 0, 0}};
        if (at / kLanes < kRows && at % kLanes < kChunks)
          x[u] = chunk(first + at / kLanes, at % kLanes);
      }
      FA3_UNROLL
      for (u32 u = 0; u < kAtATime; ++u) {
        const u32 at = begin + u * kWgThreads + thread;
        const RowPower power = widen(x[u]);
        if (at / kLanes < kRows) store(at / kLanes, at % kLanes, x[u], power);
      }
    }
  }

 private:
  FA3_DEV QChunk chunk(u32 row, u32 at) const {
    if constexpr (!kCfg.q8) {
      return q_chunk<kCfg>(args, unit, row, at);
    } else {
      const auto [query, head] = packed_row(args.shape, unit, row);
      QChunk x{{0, 0, 0, 0}};
      if (query >= unit.q.used || static_cast<i32>(8 * at) >= args.head_dim_qk) return x;
      const i64 from = unit.batch * args.q_batch +
                       (first_row(args.shape.q_axis, unit.q) + query) * args.q_row +
                       head * args.q_head + 8 * at;
      const auto codes = ptx::ld_global_nc(
          reinterpret_cast<const ptx::Vec<u32, 2>*>(reinterpret_cast<const u8*>(args.q) + from));
      FA3_UNROLL
      for (int i = 0; i < 2; ++i)
        x[2 * i] = widened_low(codes[i]), x[2 * i + 1] = widened_high(codes[i]);
      return x;
    }
  }
  // All lanes.
  FA3_DEV static RowPower widen(QChunk& x) {
    if constexpr (kCfg.q8 || kCfg.dtype == MmaType::kF16) return {};
    u32 most = 0;
    FA3_UNROLL
    for (int i = 0; i < 4; ++i)
      most = fa3::max(most, fa3::max(x[i] & 0x7fffu, x[i] >> 16 & 0x7fffu));
    FA3_UNROLL
    for (u32 m = 1; m < kLanes; m *= 2) most = fa3::max(most, ptx::shfl_xor(most, m));
    const RowPower power = RowPower::of_bf16(most);
    FA3_UNROLL
    for (int i = 0; i < 4; ++i)
      x[i] = ptx::pack_f16(low_of<MmaType::kBf16>(x[i]) * power.factor,
                           high_of<MmaType::kBf16>(x[i]) * power.factor);
    return power;
  }
  FA3_DEV void store(u32 row, u32 at, const QChunk& x, const RowPower& power) const {
    if (at == 0) ptx::st_shared(&own.of_q[row], power.inverse);
    if (at >= kChunks) return;
    constexpr TileLayout kTile = kCfg.q_tile();
    constexpr u32 kWidth = kTile.panel_width();
    FA3_UNROLL
    for (u32 odd = 0; odd < 2; ++odd) {
      const u32 bytes = 4 * widened_column_pair(4 * at + odd);
      u8* const panel = own.q + bytes / kWidth * kTile.panel_bytes();
      ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 2>*>(
                         panel + panel_offset(row, bytes % kWidth, kTile.swizzle())),
                     ptx::Vec<u32, 2>{{x[odd], x[odd + 2]}});
    }
  }
};

}  // namespace fa3::sm90
