// SPDX-License-Identifier: BSD-3-Clause
// piece.h — some columns of a row on their way into a cache: rotated, or as they are.
#pragma once

#include "device/hopper/operand.h"
#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/sm90/append/args.h"
#include "device/sm90/append/config.h"

namespace fa3::sm90 {

// The position of row i of those that are rotated, of a sequence that has `keys` already. What is
// in memory may be wrong.
FA3_DEV i32 rotary_position(const AppendTable& table, i32 b, i32 keys, i32 i) {
  if (table.positions == 0) return 0;
  const i32 first = table.first == nullptr ? keys : ptx::ld_global_nc(table.first + b);
  const i32 last = table.positions - 1, known = clamp(first, 0, last);
  return known + min(i, last - known);
}

// Neighbours of 16 bits.
using Eight = ptx::Vec<u32, 4>;

template <MmaType kType>
FA3_DEV float low_of(u32 two) {
  const auto half = static_cast<u16>(two);
  return kType == MmaType::kF16 ? ptx::f16_to_f32(half) : ptx::bf16_to_f32(half);
}
template <MmaType kType>
FA3_DEV float high_of(u32 two) {
  return low_of<kType>(two >> 16);
}

// A pair, rotated. Not left to the compiler: whoever rotates a row gets the same bits.
FA3_DEV float turned_a(float a, float b, float cos, float sin) {
  return ptx::fma(a, cos, -(b * sin));
}
FA3_DEV float turned_b(float a, float b, float cos, float sin) { return ptx::fma(b, cos, a * sin); }

// A pair in place.
FA3_DEV void turn_pair(float& a, float& b, float cos, float sin) {
  const float turned = turned_a(a, b, cos, sin);
  b = turned_b(a, b, cos, sin);
  a = turned;
}

// A piece of a row of a head: eight pairs that are rotated, or columns that are copied; whole, and
// at multiples of 16 bytes, in tables, too. Loaded first, so that several are on their way.
template <AppendConfig kCfg>
struct WidePiece {
  static constexpr MmaType kType = kCfg.type;
  static constexpr bool kF32 = kCfg.table == FloatType::kF32;

  Eight low, high;  // at columns a and b of the row
  Eight cos[kF32 ? 2 : 1], sin[kF32 ? 2 : 1];
  i32 a, b;  // b < 0: it is copied

  // Elements are named by where they lie in their row, from which `from` and `to` count. rotated:
  // pairs of columns, the first ones.
  FA3_DEV void load(const AppendTable& table, const u16* from, i32 rotated, i32 piece,
                    i32 position) {
    const i32 first = kAppendPiece * piece;
    const bool copies = first >= rotated;
    a = copies ? rotated + first : table.pairs ? 2 * first : first;
    b = copies ? -1 : table.pairs ? a + kAppendPiece : first + rotated;
    low = ptx::ld_global(reinterpret_cast<const Eight*>(from + a));
    if (copies) return;
    high = ptx::ld_global(reinterpret_cast<const Eight*>(from + b));
    load_angles(table.cosines, position * table.cosine_row + first, cos);
    load_angles(table.sines, position * table.sine_row + first, sin);
  }
  FA3_DEV void store(const AppendTable& table, u16* to) {
    if (b >= 0) {
      if (table.pairs) {
        turn_neighbours(low, 0);
        turn_neighbours(high, 4);
      } else {
        turn_apart();
      }
      ptx::st_global(reinterpret_cast<Eight*>(to + b), high);
    }
    ptx::st_global(reinterpret_cast<Eight*>(to + a), low);
  }

 private:
  FA3_DEV static void load_angles(const u8* angles, i64 at, Eight (&to)[kF32 ? 2 : 1]) {
    const auto* const from = reinterpret_cast<const Eight*>(angles + size_of(kCfg.table) * at);
    FA3_UNROLL
    for (int half = 0; half < (kF32 ? 2 : 1); ++half) to[half] = ptx::ld_global_nc(from + half);
  }
  FA3_DEV static float angle(const Eight (&of)[kF32 ? 2 : 1], int j) {
    if constexpr (kF32) return ptx::bits_as<float>(of[j / 4][j % 4]);
    const u32 two = of[0][j / 2] >> 16 * (j % 2);
    return low_of < kCfg.table == FloatType::kF16 ? MmaType::kF16 : MmaType::kBf16 > (two);
  }
  // Four pairs, each of two neighbours, with the angles from one on.
  FA3_DEV void turn_neighbours(Eight& x, int first) const {
    FA3_UNROLL
    for (int j = 0; j < 4; ++j) {
      float u = low_of<kType>(x[j]), v = high_of<kType>(x[j]);
      turn_pair(u, v, angle(cos, first + j), angle(sin, first + j));
      x[j] = pack16<kType>(u, v);
    }
  }
  // Eight pairs of one of `low` and one of `high`.
  FA3_DEV void turn_apart() {
    FA3_UNROLL
    for (int j = 0; j < 4; ++j) {
      float u[2] = {low_of<kType>(low[j]), high_of<kType>(low[j])};
      float v[2] = {low_of<kType>(high[j]), high_of<kType>(high[j])};
      FA3_UNROLL
      for (int k = 0; k < 2; ++k)
        turn_pair(u[k], v[k], angle(cos, 2 * j + k), angle(sin, 2 * j + k));
      low[j] = pack16<kType>(u[0], u[1]);
      high[j] = pack16<kType>(v[0], v[1]);
    }
  }
};

// The same of any extents and addresses, element by element.
template <AppendConfig kCfg>
struct NarrowPiece {
  static constexpr MmaType kType = kCfg.type;

  const AppendTable& table;
  i32 rotated, copied;  // pairs of columns at the beginning of a row, and columns behind them

  FA3_DEV void write(const u16* from, u16* to, i32 piece, i32 position) const {
    const i32 first = kAppendPiece * piece;
    const i32 turned = static_cast<i32>(round_up(rotated, kAppendPiece));
    if (first >= turned) {
      const i32 begin = 2 * rotated + first - turned, end = 2 * rotated + copied;
      for (i32 c = begin; c < min(begin + kAppendPiece, end); ++c)
        ptx::st_global(to + c, ptx::ld_global(from + c));
      return;
    }
    for (i32 pair = first; pair < min(first + kAppendPiece, rotated); ++pair) {
      const i32 a = table.pairs ? 2 * pair : pair;
      const i32 b = table.pairs ? a + 1 : pair + rotated;
      float u = low_of<kType>(ptx::ld_global(from + a)),
            v = low_of<kType>(ptx::ld_global(from + b));
      turn_pair(u, v, angle(table.cosines, position * table.cosine_row + pair),
                angle(table.sines, position * table.sine_row + pair));
      const u32 both = pack16<kType>(u, v);
      ptx::st_global(to + a, static_cast<u16>(both));
      ptx::st_global(to + b, static_cast<u16>(both >> 16));
    }
  }

 private:
  FA3_DEV static float angle(const u8* angles, i64 at) {
    if constexpr (kCfg.table == FloatType::kF32)
      return ptx::ld_global_nc(reinterpret_cast<const float*>(angles) + at);
    const u16 half = ptx::ld_global_nc(reinterpret_cast<const u16*>(angles) + at);
    return low_of < kCfg.table == FloatType::kF16 ? MmaType::kF16 : MmaType::kBf16 > (half);
  }
};

}  // namespace fa3::sm90
