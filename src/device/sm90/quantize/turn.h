// SPDX-License-Identifier: BSD-3-Clause
// turn.h — a row of x as a lane has it, turned: H·S·R·x (quantize.h), by additions in FP32.
#pragma once

#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/warp.h"
#include "device/sm90/quantize/config.h"
#include "device/sm90/quantize/place.h"

namespace fa3::sm90 {

// Eight neighbours that begin at an element of a tensor; `sign` turns those of x. load(p): what
// lies at p.
template <FloatType kType, class Load>
FA3_DEV void load_piece(const void* data, i64 element, float* to, const ptx::Vec<u32, 4>& sign,
                        const Load& load) {
  using Four = ptx::Vec<u32, 4>;
  const u8* const from = static_cast<const u8*>(data) + element * size_of(kType);
  if constexpr (kType == FloatType::kF32) {
    FA3_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Four words = load(reinterpret_cast<const Four*>(from + 16 * half));
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        const u32 mask = sign[2 * half + i / 2];
        const u32 own = i % 2 == 0 ? mask << 16 : mask & 0x80000000u;
        to[4 * half + i] = ptx::bits_as<float>(words[i] ^ own);
      }
    }
  } else {
    const Four words = load(reinterpret_cast<const Four*>(from));
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 two = words[i] ^ sign[i];
      if constexpr (kType == FloatType::kBf16) {
        to[2 * i] = ptx::bits_as<float>(two << 16);
        to[2 * i + 1] = ptx::bits_as<float>(two & 0xffff0000u);
      } else {
        to[2 * i] = ptx::f16_to_f32(static_cast<u16>(two));
        to[2 * i + 1] = ptx::f16_to_f32(static_cast<u16>(two >> 16));
      }
    }
  }
}

// Four neighbours of a table.
template <FloatType kType, class Load>
FA3_DEV void load_half(const void* data, i64 element, float* to, const Load& load) {
  const u8* const from = static_cast<const u8*>(data) + element * size_of(kType);
  if constexpr (kType == FloatType::kF32) {
    const auto words = load(reinterpret_cast<const ptx::Vec<float, 4>*>(from));
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = words[i];
  } else {
    const auto words = load(reinterpret_cast<const ptx::Vec<u16, 4>*>(from));
    FA3_UNROLL
    for (int i = 0; i < 4; ++i)
      to[i] = kType == FloatType::kF16 ? ptx::f16_to_f32(words[i]) : ptx::bf16_to_f32(words[i]);
  }
}

// The two places that tensors may be loaded from.
struct FromGlobal {
  template <class T>
  FA3_DEV T operator()(const T* from) const {
    return ptx::ld_global(from);
  }
};
struct FromShared {
  template <class T>
  FA3_DEV T operator()(const T* from) const {
    return ptx::ld_shared(from);
  }
};

// Which of the lanes that share a row this is, and which piece of the row is its piece j: where
// lanes exchange columns, m of them, in groups of m of which the lane's number turns the order.
template <TurnConfig kCfg>
FA3_DEV i32 lane_of() {
  return static_cast<i32>(ptx::thread_index() / kCfg.lane_step() % kCfg.lanes());
}
template <TurnConfig kCfg>
FA3_DEV i32 piece_of(int j) {
  constexpr int m = kCfg.lanes();
  const i32 lane = lane_of<kCfg>();
  if constexpr (kCfg.exchanges()) return j / m * m * m + ((j % m ^ lane) * m + lane);
  return lane + m * j;
}
// The same after the exchange, whose groups are neighbours; `flip`, of a bit, in their order.
template <TurnConfig kCfg>
FA3_DEV i32 turned_piece_of(int j, i32 flip) {
  constexpr int m = kCfg.lanes();
  const i32 lane = lane_of<kCfg>();
  if constexpr (kCfg.exchanges()) return j / m * m * m + (lane * m + (j % m ^ lane ^ flip));
  return (lane ^ flip) + m * j;
}

struct RotatePair {
  FA3_DEV void operator()(float& a, float& b, float cos, float sin) const {
    const float turned = a * cos - b * sin;
    b = b * cos + a * sin;
    a = turned;
  }
};

// R: pair() of the pairs of a lane's columns and a row of the tables, which begins at these
// elements.
template <TurnConfig kCfg, class Load, class Pair = RotatePair>
FA3_DEV void rotate(float (&y)[kCfg.values()], const void* cosines, i64 cosine, const void* sines,
                    i64 sine, const Load& load, const Pair& pair = {}) {
  constexpr int kHalf = kCfg.rotary_dim / 2;
  constexpr int kApart = kHalf / kCfg.lanes();  // of the values of a pair
  FA3_UNROLL
  for (int j = 0; j < kCfg.pieces(); ++j) {
    const int first = 8 * piece_of<kCfg>(j);
    float cos[8], sin[8];
    if constexpr (kCfg.rotary == RotaryKind::kHalves) {
      if (8 * j >= kApart) return;
      load_piece<kCfg.table>(cosines, cosine + first, cos, {}, load);
      load_piece<kCfg.table>(sines, sine + first, sin, {}, load);
      FA3_UNROLL
      for (int v = 8 * j; v < 8 * j + 8; ++v)
        pair(y[v], y[v + kApart], cos[v - 8 * j], sin[v - 8 * j]);
    } else {
      if (first >= kCfg.rotary_dim) return;
      load_half<kCfg.table>(cosines, cosine + first / 2, cos, load);
      load_half<kCfg.table>(sines, sine + first / 2, sin, load);
      FA3_UNROLL
      for (int v = 0; v < 4; ++v) pair(y[8 * j + 2 * v], y[8 * j + 2 * v + 1], cos[v], sin[v]);
    }
  }
}

// Butterflies between values whose indices differ in the bit `half`; not the first ones.
template <int N>
FA3_DEV void add_halves(float (&y)[N], int half, int first = 0) {
  FA3_UNROLL
  for (int v = first; v < N; ++v) {
    if ((v & half) != 0) continue;
    const float a = y[v], b = y[v + half];
    y[v] = a + b, y[v + half] = a - b;
  }
}

// The same where a lane with `own` = −1 has the values of each pair the other way round.
template <int N>
FA3_DEV void add_halves_of_lane(float (&y)[N], int half, float own) {
  FA3_UNROLL
  for (int v = 0; v < N; ++v) {
    if ((v & half) != 0) continue;
    const float a = y[v], b = y[v + half];
    y[v] = ptx::fma(a, own, b), y[v + half] = ptx::fma(b, -own, a);
  }
}

// √hadamard·H of a row. All lanes of a warp. kDone: in rotated columns the butterflies between
// columns so far apart have been done. kLeft: none between columns so far apart.
template <TurnConfig kCfg, int kDone = 0, int kLeft = 0>
FA3_DEV void spread(float (&y)[kCfg.values()]) {
  constexpr int kLanes = kCfg.lanes();
  const auto add = [&](int half, int columns) {
    if (columns != kLeft) add_halves(y, half, columns == kDone ? kCfg.rotary_dim / kLanes : 0);
  };
  FA3_UNROLL
  for (int half = 1; half < 8 && half < kCfg.hadamard; half *= 2) add(half, half);
  FA3_UNROLL
  for (int m = 1; m < kLanes && 8 * m < kCfg.hadamard; m *= 2) {
    const float own = (lane_of<kCfg>() & m) != 0 ? -1.f : 1.f;
    if constexpr (kCfg.exchanges()) {
      // Both lanes keep one value of two and hand over the other, so that each then does both sums
      // of half of the pairs. What bit of a column the lanes stood for, the values stand for now.
      add_halves_of_lane(y, 8 * m, own);
      FA3_UNROLL
      for (int v = 0; v < kCfg.values(); ++v)
        if ((v & 8 * m) != 0) y[v] = ptx::shfl_xor(y[v], static_cast<u32>(m * kCfg.lane_step()));
      add_halves_of_lane(y, 8 * m, own);
    } else {
      FA3_UNROLL
      for (int v = 0; v < kCfg.values(); ++v)
        y[v] = ptx::fma(y[v], own, ptx::shfl_xor(y[v], static_cast<u32>(m * kCfg.lane_step())));
    }
  }
  FA3_UNROLL
  for (int half = kCfg.exchanges() ? 8 * kLanes : 8; kLanes * half < kCfg.hadamard; half *= 2)
    add(half, kLanes * half);
}

struct NoSmem {};

// Turns one row of a thread, row(0) from the first of a turn on.
template <TurnConfig kCfg>
class RowTurner {
 public:
  static constexpr int kValues = kCfg.values();
  static constexpr float kUnit = 1;
  using Smem = NoSmem;

  FA3_DEV RowTurner(const QuantizeArgs& args, Smem&) : args_(args) {
    FA3_UNROLL
    for (int j = 0; j < kCfg.pieces(); ++j)
      sign_[j] = kCfg.hadamard > 0 ? args.sign[piece_of<kCfg>(j)] : ptx::Vec<u32, 4>{};
  }
  FA3_DEV static i32 row(int) { return static_cast<i32>(ptx::thread_index()) / kCfg.lanes(); }

  FA3_DEV void start(const QuantizePlace&, const RowWalk&) const {}
  // Turn n. A row that does not count is zeros.
  FA3_DEV void turn(const QuantizePlace& place, const RowWalk& walk, i32 n,
                    float (&y)[1][kValues]) const {
    turn(place, walk.first(n) + row(0), y[0]);
  }

  // Row i, the same for all lanes that share it. All lanes of a warp.
  FA3_DEV void turn(const QuantizePlace& place, i32 i, float (&y)[kValues]) const {
    FA3_UNROLL
    for (int v = 0; v < kValues; ++v) y[v] = 0;
    if (i < place.rows.used) {
      const i64 at = place.at(args_.x, i);
      FA3_UNROLL
      for (int j = 0; j < kCfg.pieces(); ++j)
        load_piece<kCfg.x>(args_.x.data, at + 8 * piece_of<kCfg>(j), y + 8 * j, sign_[j],
                           FromGlobal{});
      if constexpr (kCfg.rotary != RotaryKind::kNone) {
        const i64 t = position_of(args_, first_position(args_, place.b), i);
        rotate<kCfg>(y, args_.cosine.data, t * args_.cosine.row, args_.sine.data,
                     t * args_.sine.row, FromGlobal{});
      }
    }
    if constexpr (kCfg.hadamard > 0) {
      FA3_UNROLL
      for (int v = 0; v < kValues; ++v) y[v] *= args_.unit;
      spread<kCfg>(y);
    }
  }

 private:
  const QuantizeArgs& args_;
  ptx::Vec<u32, 4> sign_[kCfg.pieces()];
};

}  // namespace fa3::sm90
