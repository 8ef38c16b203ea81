// SPDX-License-Identifier: BSD-3-Clause
// mask_tensor.h — attn_mask as kernels read it: what a kernel before them has made of it
// (sm90/mask/mask_bits.cuh), a bit a key, and which KV tiles it hides, shows or adds to. Elements
// themselves are read only where they are added, and only those that show a key.
#pragma once

#include "device/attn/kinds.h"
#include "device/attn/tile_range.h"
#include "device/ptx/barrier.h"
#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/vec.h"
#include "device/ptx/warp.h"
#include "device/types.h"
#include "device/warp/fragment.h"
#include "device/warp/score.h"
#include "device/warp/softmax.h"

namespace fa3 {

// Of 32 KV tiles, the first in the lowest bit of each word: tiles of which some query sees a key;
// from some query of which a key is hidden; of which some score changes. Word 3 is 0.
using MaskTiles = ptx::Vec<u32, 4>;

// Bits and tiles are written while the next kernel begins already: not to be read by ld.global.nc.
// Strides of dimensions in which the mask is the same for all are 0; `step` is 1, or 0 where it is
// the same for all keys.
struct MaskTensorArgs {
  const void* values;
  i64 batch, head, row;  // in elements
  const u32* bits;       // 32 keys a word, the first in its lowest bit; 1: visible
  i64 bits_batch, bits_head, bits_row;
  const MaskTiles* tiles;  // of a Q tile, 32 KV tiles each
  i64 tiles_batch, tiles_head, tiles_q;
  i32 step;
  i32 keys;     // columns
  bool pairs;   // neighbours from an even column on are one access
  bool by_tma;  // added elements come by tiles, where the kernel has room for them
  float cap;    // softcap, by which tanh is to be multiplied before anything is added; else 1
};

// Elements as they lie, and what is added. kBf16: those of 16 bits.
template <MaskTensor kType, bool kBf16>
struct MaskElement {
  using Type = u16;
  static constexpr Type kHidden = kBf16 ? 0xFF80 : 0xFC00;  // −∞
  FA3_DEV static float value(u16 bits) {
    return kBf16 ? ptx::bf16_to_f32(bits) : ptx::f16_to_f32(bits);
  }
};
template <bool kBf16>
struct MaskElement<MaskTensor::kBool, kBf16> {
  using Type = u8;
};
template <bool kBf16>
struct MaskElement<MaskTensor::kF32, kBf16> {
  using Type = float;
  static constexpr Type kHidden = -kInf;
  FA3_DEV static float value(float x) { return x; }
};

// The KV tiles of a Q tile that the mask does not hide, from the last one down. kWarp: by whole
// warps, whose registers the compiler then knows to be one value. The reductions that tell it so
// stand behind no condition: ptxas 13.0 puts them under another condition's predicate.
template <bool kWarp>
struct ShownTiles {
  const MaskTiles* at;
  i32 step;
  i32 group;                 // of the 32 tiles that the words stand for
  u32 shown, hidden, added;  // one value in all lanes

  FA3_DEV void begin(const MaskTensorArgs& args, i32 batch, i32 head, i32 q_tile, i32 kv_tile) {
    at = args.tiles + batch * args.tiles_batch + head * args.tiles_head + q_tile * args.tiles_q;
    step = args.step;
    load(max(kv_tile, 0) / 32);
  }
  FA3_DEV void load(i32 to) {
    group = to;
    const MaskTiles words = ptx::ld_global(at + group * step);
    shown = words[0], hidden = words[1], added = words[2];
  }
  // The last one before kv_tile, or first − 1.
  FA3_DEV i32 before(i32 kv_tile, i32 first) {
    FA3_NO_UNROLL
    while (kv_tile > first) {
      const i32 to = (kv_tile - 1) / 32;
      if (to != group) load(to);
      const u32 left = one(shown) & (~0u >> (32 * to + 32 - kv_tile));
      if (left != 0) return max(32 * to + 31 - ptx::clz(left), first - 1);
      kv_tile = 32 * to;
    }
    return first - 1;
  }
  // Of a tile of the group.
  FA3_DEV bool changes(i32 kv_tile) const {
    return (one(hidden | added) >> (kv_tile % 32) & 1) != 0;
  }
  FA3_DEV bool hides(i32 kv_tile) const { return (one(hidden) >> (kv_tile % 32) & 1) != 0; }
  FA3_DEV bool adds(i32 kv_tile) const { return (one(added) >> (kv_tile % 32) & 1) != 0; }

 private:
  FA3_DEV static u32 one(u32 x) { return kWarp ? ptx::redux_or(x) : x; }
};

// The range without the tiles at its ends that the mask hides. Whole warp.
FA3_DEV TileRange shown_range(const MaskTensorArgs& args, i32 batch, i32 head, i32 q_tile,
                              TileRange range) {
  if (range.empty()) return range;
  const MaskTiles* const at =
      args.tiles + batch * args.tiles_batch + head * args.tiles_head + q_tile * args.tiles_q;
  i32 first = range.end, last = range.first - 1;
  FA3_NO_UNROLL
  for (i32 begin = range.first / 32; 32 * begin < range.end; begin += 32) {
    const i32 group = begin + static_cast<i32>(ptx::lane_index()), tile = 32 * group;
    if (tile >= range.end) continue;
    u32 shown = ptx::ld_global(reinterpret_cast<const u32*>(at + group * args.step));
    if (tile < range.first) shown &= ~0u << (range.first - tile);
    if (tile + 32 > range.end) shown &= ~0u >> (tile + 32 - range.end);
    if (shown == 0) continue;
    first = min(first, tile + 31 - ptx::clz(shown & (0 - shown)));
    last = max(last, tile + 31 - ptx::clz(shown));
  }
  ptx::warp_sync();  // sim:spare(converge)
  first = ptx::redux_min_i32(first), last = ptx::redux_max_i32(last);
  if (first > last) return {};
  range.first = first, range.end = last + 1;
  return range;
}

// Bits [lo, hi) of a word.
FA3_HD constexpr u32 bits_between(i32 lo, i32 hi) {
  const u32 from = lo <= 0 ? ~0u : lo < 32 ? ~0u << lo : 0u;
  const u32 to = hi >= 32 ? ~0u : hi > 0 ? ~(~0u << hi) : 0u;
  return from & to;
}

// The keys of a tile of N that a thread's two rows see, by the band and the mask.
template <int N>
struct ShownKeys {
  static_assert(N % 32 == 0, "whole words of bits");
  u32 word[2][N / 32];  // from the thread's first column on

  // row: the first of the two, and the last that there is, both of the sequence.
  FA3_DEV void load(const MaskTensorArgs& args, i32 batch, i32 head, i32 row, i32 last, i32 kv_tile,
                    const BandMask& band) {
    const u32 column = fragment_column(ptx::lane_index());
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32* const at = args.bits + batch * args.bits_batch + head * args.bits_head +
                            min(row + 8 * h, last) * args.bits_row + kv_tile * (N / 32) * args.step;
      const i32 first = kv_tile * N - static_cast<i32>(column);
      FA3_UNROLL
      for (int w = 0; w < N / 32; ++w) {
        const u32 bits = ptx::ld_global(at + w * args.step) &
                         bits_between(band.lo[h] - first - 32 * w, band.hi[h] - first - 32 * w);
        word[h][w] = bits >> column;
      }
    }
  }

  // Some key of the row: in a quad, its first thread has all columns.
  FA3_DEV bool sees_any(int h) const {
    u32 all = 0;
    FA3_UNROLL
    for (int w = 0; w < N / 32; ++w) all |= word[h][w];
    return all != 0;
  }

  // The key `column`, a constant, beyond the thread's first.
  FA3_DEV bool sees(int h, int column) const {
    return (word[h][column / 32] & (1u << (column % 32))) != 0;
  }

  // Hides the others' scores.
  template <class T>
  FA3_DEV void apply(ptx::Acc<N, T>& s) const {
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i)
      if (!sees(i / 2 % 2, 8 * (i / 4) + i % 2)) set_number(s[i], -kInf);
  }
};

// Adds the elements to scores, also those of keys that are not seen: whether they are, is not
// waited for. row: the first of the thread's two, and the last that there is, both of the sequence.
template <class Element, int N>
FA3_DEV void add_mask_elements(ptx::Acc<N>& s, const MaskTensorArgs& args, i32 batch, i32 head,
                               i32 row, i32 last, i32 kv_tile) {
  const i32 first = kv_tile * N + static_cast<i32>(fragment_column(ptx::lane_index()));
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    const auto* const at = static_cast<const typename Element::Type*>(args.values) +
                           batch * args.batch + head * args.head +
                           min(row + 8 * h, last) * args.row + first * args.step;
    const i32 left = args.step == 0 ? 0 : args.keys - first;
    if (args.pairs) {
      using Two = ptx::Vec<typename Element::Type, 2>;
      FA3_UNROLL
      for (int i = 2 * h; i < N / 2; i += 4) {
        const int column = 8 * (i / 4);
        const auto* const from = reinterpret_cast<const Two*>(at + column);
        const Two two = ptx::ld_global_nc_if(from, column < left);
        s[i] += Element::value(two[0]);
        s[i + 1] += Element::value(two[1]);
      }
    } else {
      const float same = Element::value(ptx::ld_global_nc_if(at, args.step == 0));
      FA3_UNROLL
      for (int i = 2 * h; i < N / 2; i += i % 2 == 0 ? 1 : 3) {
        const int column = 8 * (i / 4) + i % 2;
        s[i] += same + Element::value(ptx::ld_global_nc_if(at + column, column < left));
      }
    }
  }
}

}  // namespace fa3
