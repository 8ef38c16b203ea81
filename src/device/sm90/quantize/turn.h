// SPDX-License-Identifier: BSD-3-Clause
// turn.h — a row of x as a lane has it, turned: H·S·R·x (quantize.h), by additions in FP32.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/barrier.h"
#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/quantize/args.h"
#include "device/sm90/quantize/config.h"

namespace fa3::sm90 {

// The sequence and the head of a CTA: heads, whose rows are neighbours in memory, lie along x of
// the grid, parts of the rows along y, sequences along z; with cu_seqlens one more, of the rows
// behind the last, none of which counts. A second pass over x goes backwards, from what the L2
// cache still has of the first.
struct QuantizePlace {
  i32 b, head;
  i32 ctas, cta;  // of the rows, and which this is
  SequenceRows rows;

  FA3_DEV explicit QuantizePlace(const QuantizeArgs& args, bool backwards = false)
      : b(static_cast<i32>(ptx::block_index_z())),
        head(static_cast<i32>(ptx::block_index_x())),
        ctas(static_cast<i32>(ptx::grid_dim_y())),
        cta(static_cast<i32>(ptx::block_index_y())) {
    if (backwards) {
      b = static_cast<i32>(ptx::grid_dim_z()) - 1 - b;
      head = static_cast<i32>(ptx::grid_dim_x()) - 1 - head;
      cta = ctas - 1 - cta;
    }
    rows = rows_of<true>(args.axis, args.batch, b);
  }

  FA3_DEV QuantizePlace(i32 sequence, i32 head_of_it, const SequenceRows& rows_of_it)
      : b(sequence), head(head_of_it), ctas(1), cta(0), rows(rows_of_it) {}

  // Of row i of the sequence.
  template <class T>
  FA3_DEV i64 at(const Strided<T>& tensor, i64 i) const {
    return b * tensor.batch + (rows.begin + i) * tensor.row + head * tensor.head;
  }
};

// Eight neighbours of x as FP32, from their words in memory; `sign` turns them.
template <FloatType kType>
FA3_DEV void to_floats(ptx::Vec<u32, 4> words, float* to, const ptx::Vec<u32, 4>& sign) {
  static_assert(kType != FloatType::kF32);
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
    to_floats<kType>(load(reinterpret_cast<const Four*>(from)), to, sign);
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

// Which of the lanes that share a row this is, and which piece of the row is its piece j.
template <TurnConfig kCfg>
FA3_DEV i32 lane_of() {
  return static_cast<i32>(ptx::thread_index() / kCfg.lane_step() % kCfg.lanes());
}
template <TurnConfig kCfg>
FA3_DEV i32 piece_of(int j) {
  return lane_of<kCfg>() + kCfg.lanes() * j;
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

// The row of the tables for the first row of sequence b, and for row i. Positions in device memory
// may be wrong, and lengths with them.
FA3_DEV i64 first_position(const QuantizeArgs& args, i32 b) {
  return args.position == nullptr ? 0 : ptx::ld_global_nc(args.position + b);
}
FA3_DEV i64 position_of(const QuantizeArgs& args, i64 first, i32 i) {
  return min(max(first + i, i64{0}), i64{args.positions} - 1);
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
    FA3_UNROLL
    for (int v = 0; v < kCfg.values(); ++v)
      y[v] = ptx::fma(y[v], own, ptx::shfl_xor(y[v], static_cast<u32>(m * kCfg.lane_step())));
  }
  FA3_UNROLL
  for (int half = 8; kLanes * half < kCfg.hadamard; half *= 2) add(half, kLanes * half);
}

// Which rows a CTA turns: `turns` times as many as it holds, then those `step` rows further on.
struct RowWalk {
  i32 start, step, turns, rows;

  // The first row of turn n.
  FA3_DEV i32 first(i32 n) const { return start + n / turns * step + n % turns * rows; }
};

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

// The means of a head, in shared memory.
template <TurnConfig kCfg>
struct MeanSmem {
  alignas(16) float mean[kCfg.head_dim];
  FA3_NAMED(mean)
};

// False: there are none. All threads of the CTA. Ends in a cta_sync; by GEMM without one, since
// turn() has one before centre().
template <TurnConfig kCfg, int kWarpgroups = 1>
FA3_DEV bool load_means(const QuantizeArgs& args, const QuantizePlace& place,
                        MeanSmem<kCfg>& smem) {
  if (args.offset.data == nullptr || place.b >= args.batch) return false;
  const float* const from =
      args.offset.data + place.b * args.offset.batch + place.head * args.offset.head;
  for (int c = static_cast<int>(ptx::thread_index()); c < kCfg.head_dim;
       c += kWarpgroups * kCfg.threads())
    ptx::st_shared(&smem.mean[c], ptx::ld_global(from + c));
  if constexpr (!kCfg.by_gemm()) ptx::cta_sync();
  return true;
}

// A row in units of `unit`, less the mean: in units of 1.
template <TurnConfig kCfg>
FA3_DEV void centre(const MeanSmem<kCfg>& smem, float unit, float (&y)[kCfg.values()]) {
  FA3_UNROLL
  for (int v = 0; v < kCfg.values(); v += 4) {
    const auto* const from = reinterpret_cast<const ptx::Vec<float, 4>*>(smem.mean);
    const auto mean = ptx::ld_shared(from + 2 * piece_of<kCfg>(v / 8) + v / 4 % 2);
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) y[v + i] = ptx::fma(y[v + i], unit, -mean[i]);
  }
}

// The largest |y| of each block of columns that a lane has of a row, and of all; NaN above all.
template <TurnConfig kCfg>
FA3_DEV float largest(const float (&y)[kCfg.values()], float (&own)[kCfg.col_blocks()]) {
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) own[k] = 0;
  FA3_UNROLL
  for (int j = 0; j < kCfg.pieces(); ++j) {
    float& block = own[kCfg.col_block(j)];
    FA3_UNROLL
    for (int v = 8 * j; v < 8 * j + 8; ++v) block = ptx::max_nan(block, ptx::abs(y[v]));
  }
  float most = 0;
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) most = ptx::max_nan(most, own[k]);
  return most;
}

// The same of a row whose butterflies between columns kLeft apart are still to be done, kLeft < 8:
// |a| + |b| is the larger one of |a + b| and |a − b|, bit for bit. Sums compare as their bits do.
template <TurnConfig kCfg, int kLeft>
FA3_DEV float largest_after(const float (&y)[kCfg.values()], float (&own)[kCfg.col_blocks()]) {
  i32 block[kCfg.col_blocks()] = {};
  FA3_UNROLL
  for (int v = 0; v < kCfg.values(); ++v) {
    if ((v & kLeft) != 0) continue;
    i32& most = block[kCfg.col_block(v / 8)];
    most = max(most, ptx::bits_as<i32>(ptx::abs(y[v]) + ptx::abs(y[v + kLeft])));
  }
  i32 most = 0;
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) {
    most = max(most, block[k]);
    own[k] = ptx::bits_as<float>(block[k]);
  }
  return ptx::bits_as<float>(most);
}

// The same of a few rows, if any: what is not finite becomes NaN; it is the largest for I8, and
// nothing for E4M3, which has a code for it.
template <TurnConfig kCfg>
FA3_DEV void finite_maxima(float (&y)[kCfg.values()], bool to_i8, float (&own)[kCfg.col_blocks()]) {
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) own[k] = 0;
  FA3_UNROLL
  for (int j = 0; j < kCfg.pieces(); ++j) {
    float& block = own[kCfg.col_block(j)];
    FA3_UNROLL
    for (int v = 8 * j; v < 8 * j + 8; ++v) {
      y[v] = ptx::abs(y[v]) < kInf ? y[v] : kInf - kInf;
      block = to_i8 ? ptx::max_nan(block, ptx::abs(y[v])) : ptx::max(block, ptx::abs(y[v]));
    }
  }
}

// Whichever it is.
template <TurnConfig kCfg>
FA3_DEV void own_maxima(float (&y)[kCfg.values()], bool to_i8, float (&own)[kCfg.col_blocks()]) {
  if (!(largest<kCfg>(y, own) < kInf)) finite_maxima<kCfg>(y, to_i8, own);
}

// The same of the whole row. All lanes of a warp.
template <TurnConfig kCfg>
FA3_DEV void over_lanes(float (&own)[kCfg.col_blocks()]) {
  FA3_UNROLL
  for (int k = 0; k < kCfg.col_blocks(); ++k) {
    FA3_UNROLL
    for (int m = 1; m < kCfg.lanes(); m *= 2)
      own[k] = ptx::max_nan(own[k], ptx::shfl_xor(own[k], static_cast<u32>(m * kCfg.lane_step())));
  }
}

}  // namespace fa3::sm90
