// SPDX-License-Identifier: BSD-3-Clause
// load_q.h — a consumer's packed rows of Q, from anywhere in memory into its tile.
#pragma once

#include "device/hopper/swizzle.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/vec.h"
#include "device/sm90/append/piece.h"
#include "device/sm90/decode/args.h"
#include "device/sm90/decode/config.h"
#include "device/sm90/decode/unit.h"

namespace fa3::sm90 {

using QChunk = ptx::Vec<u32, 4>;

// row: packed, counted from the unit's first.
template <DecodeConfig kCfg>
FA3_DEV QChunk q_chunk(const DecodeArgs& args, const DecodeUnit& unit, u32 row, u32 chunk) {
  const auto [query, head] = packed_row(args.shape, unit, row);
  if (query >= unit.q.used || static_cast<i32>(8 * chunk) >= args.head_dim_qk)
    return {{0, 0, 0, 0}};
  const i64 at = first_row(args.shape.q_axis, unit.q) + query;
  return ptx::ld_global_nc(reinterpret_cast<const QChunk*>(
      args.q + unit.batch * args.q_batch + at * args.q_row + head * args.q_head + 8 * chunk));
}

// A chunk of 8 columns of a row of Q, what it is rotated with, and the angles.
template <DecodeConfig kCfg>
struct RotatedChunk {
  static constexpr MmaType kType = kCfg.dtype;
  QChunk own, other, cos, sin;
  bool high = false, pairs = false, copies = true;

  // first: the position of the first query.
  FA3_DEV void load(const DecodeArgs& args, const DecodeUnit& unit, i32 first, u32 row, u32 chunk) {
    const DecodeAppend& a = args.append;
    const i32 column = static_cast<i32>(8 * chunk);
    const u32 apart = static_cast<u32>(a.rotated) / 8;
    own = q_chunk<kCfg>(args, unit, row, chunk);
    copies = column >= 2 * a.rotated, pairs = a.table.pairs, high = !pairs && column >= a.rotated;
    if (copies) return;
    const i32 query = packed_row(args.shape, unit, row).query;
    const i32 last = a.table.positions - 1;
    const i32 position = a.moves ? first + min(query, last - first) : first;
    const i32 angle = pairs ? column / 2 : column - (high ? a.rotated : 0);
    if (!pairs) other = q_chunk<kCfg>(args, unit, row, high ? chunk - apart : chunk + apart);
    const auto* const cosines = reinterpret_cast<const u16*>(a.table.cosines);
    const auto* const sines = reinterpret_cast<const u16*>(a.table.sines);
    load_angles(cosines + position * a.table.cosine_row + angle, cos);
    load_angles(sines + position * a.table.sine_row + angle, sin);
  }
  FA3_DEV QChunk turned() const {
    if (copies) return own;
    QChunk out;
    FA3_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (pairs) {
        const float c = j % 2 == 0 ? low_of<kType>(cos[j / 2]) : high_of<kType>(cos[j / 2]);
        const float s = j % 2 == 0 ? low_of<kType>(sin[j / 2]) : high_of<kType>(sin[j / 2]);
        const float x = low_of<kType>(own[j]), y = high_of<kType>(own[j]);
        out[j] = pack16<kType>(turned_a(x, y, c, s), turned_b(x, y, c, s));
      } else {
        const float c[2] = {low_of<kType>(cos[j]), high_of<kType>(cos[j])};
        const float s[2] = {low_of<kType>(sin[j]), high_of<kType>(sin[j])};
        const float x[2] = {low_of<kType>(own[j]), high_of<kType>(own[j])};
        const float y[2] = {low_of<kType>(other[j]), high_of<kType>(other[j])};
        float z[2];
        FA3_UNROLL
        for (int k = 0; k < 2; ++k)
          z[k] = high ? turned_b(y[k], x[k], c[k], s[k]) : turned_a(x[k], y[k], c[k], s[k]);
        out[j] = pack16<kType>(z[0], z[1]);
      }
    }
    return out;
  }

 private:
  // Of 8 pairs, or of 4.
  FA3_DEV void load_angles(const u16* from, QChunk& to) const {
    if (pairs) {
      const auto two = ptx::ld_global_nc(reinterpret_cast<const ptx::Vec<u32, 2>*>(from));
      to[0] = two[0], to[1] = two[1];
    } else {
      to = ptx::ld_global_nc(reinterpret_cast<const QChunk*>(from));
    }
  }
};

// A chunk of a row's place in the tile.
template <DecodeConfig kCfg>
FA3_DEV void store_q_chunk(u8* to, u32 at, const QChunk& x) {
  constexpr u32 kChunks = kCfg.head_dim_qk / 8, kWidth = kCfg.q_tile().panel_width();
  const u32 bytes = 16 * (at % kChunks);
  u8* const panel = to + bytes / kWidth * kCfg.q_tile().panel_bytes();
  ptx::st_shared(reinterpret_cast<QChunk*>(
                     panel + panel_offset(at / kChunks, bytes % kWidth, kCfg.q_tile().swizzle())),
                 x);
}

// Rows first, first + 1, … of the unit by the threads of a consumer, in chunks of 16 bytes, of
// which as many as leave together: a load that is waited for takes as long as a KV tile. Rows that
// do not count are zeros, as are columns that the tensor lacks.
template <DecodeConfig kCfg>
FA3_DEV void load_q_as_it_is(u8* to, const DecodeArgs& args, const DecodeUnit& unit, u32 first,
                             u32 thread) {
  constexpr u32 kRows = kCfg.consumer_rows(), kChunks = kCfg.head_dim_qk / 8, kAtATime = 8;
  constexpr u32 kAll = kRows * kChunks;
  FA3_UNROLL
  for (u32 begin = 0; begin < kAll; begin += kAtATime * kWgThreads) {
    QChunk x[kAtATime];
    FA3_UNROLL
    for (u32 u = 0; u < kAtATime; ++u) {
      const u32 at = begin + u * kWgThreads + thread;
      if (begin + u * kWgThreads >= kAll) continue;
      x[u] = QChunk{{0, 0, 0, 0}};
      if (at < kAll) x[u] = q_chunk<kCfg>(args, unit, first + at / kChunks, at % kChunks);
    }
    FA3_UNROLL
    for (u32 u = 0; u < kAtATime; ++u) {
      const u32 at = begin + u * kWgThreads + thread;
      if (begin + u * kWgThreads >= kAll || at >= kAll) continue;
      store_q_chunk<kCfg>(to, at, x[u]);
    }
  }
}

// The same, rotated.
template <DecodeConfig kCfg>
FA3_DEV void load_rotated_q(u8* to, const DecodeArgs& args, const DecodeUnit& unit, u32 first,
                            u32 thread) {
  constexpr u32 kRows = kCfg.consumer_rows(), kChunks = kCfg.head_dim_qk / 8;
  constexpr u32 kAll = kRows * kChunks, kAtATime = kCfg.ctas_per_sm > 1 ? 1 : 2;
  const i32 position = rotary_position(args.append.table, unit.batch, unit.before, 0);
  // Not unrolled: code that runs once has to be fetched, too.
  FA3_NO_UNROLL
  for (u32 begin = 0; begin < kAll; begin += kAtATime * kWgThreads) {
    RotatedChunk<kCfg> x[kAtATime];
    FA3_UNROLL
    for (u32 u = 0; u < kAtATime; ++u) {
      const u32 at = begin + u * kWgThreads + thread;
      if (begin + u * kWgThreads >= kAll || at >= kAll) continue;
      x[u].load(args, unit, position, first + at / kChunks, at % kChunks);
    }
    FA3_UNROLL
    for (u32 u = 0; u < kAtATime; ++u) {
      const u32 at = begin + u * kWgThreads + thread;
      if (begin + u * kWgThreads >= kAll || at >= kAll) continue;
      store_q_chunk<kCfg>(to, at, x[u].turned());
    }
  }
}

template <DecodeConfig kCfg>
FA3_DEV void load_q(u8* to, const DecodeArgs& args, const DecodeUnit& unit, u32 first, u32 thread) {
  if constexpr (kCfg.appends)
    if (args.append.table.positions > 0) return load_rotated_q<kCfg>(to, args, unit, first, thread);
  load_q_as_it_is<kCfg>(to, args, unit, first, thread);
}

}  // namespace fa3::sm90
