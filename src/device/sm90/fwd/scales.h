// SPDX-License-Identifier: BSD-3-Clause
// scales.h — the scales and offsets of 8-bit tensors, as a consumer reads them. Scales of the codes
// of Q and K are a factor of the scores of a row; V's scale is a factor of O.
#pragma once

#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/config.h"
#include "device/types.h"
#include "device/warp/fragment.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// The block that a column belongs to; a tensor may have fewer columns than the kernel.
FA3_DEV i32 column_block(const FwdColumns& columns, i32 column) {
  return columns.block > 0 ? min(column / columns.block, columns.blocks - 1) : 0;
}

// Where the scale of a row lies, of a sequence that begins at row `begin` of the tensor. Lengths in
// device memory may be wrong: the block is clamped to the tensor.
FA3_DEV const float* scale_place(const FwdScale& scale, const FwdWork& work, i32 begin, i32 row) {
  i32 block = 0;
  if (scale.by_total_row) {
    block = begin + row;
  } else if (scale.block_rows > 0) {
    block = min(row / scale.block_rows, scale.blocks - 1);
  }
  return scale.data + work.batch * scale.batch + block * scale.row +
         work.head / scale.group_size * scale.head;
}
FA3_DEV float scale_at(const FwdScale& scale, const FwdWork& work, i32 begin, i32 row,
                       i32 of_columns = 0) {
  if (scale.data == nullptr) return 1.f;
  return ptx::ld_global(scale_place(scale, work, begin, row) + of_columns);
}

// The scale of one KV tile after another, the last first, where blocks have whole tiles.
template <i32 kTileKv>
struct BlockWalk {
  const float* at;
  i32 left;  // tiles of the block before its first

  FA3_DEV void begin(const FwdScale& scale, const FwdWork& work, i32 kv_tile) {
    const i32 row = kTileKv * kv_tile, rows = scale.block_rows;
    const i32 block = rows > 0 ? min(row / rows, scale.blocks - 1) : 0;
    at = scale.data + work.batch * scale.batch + work.head / scale.group_size * scale.head +
         block * scale.row;
    left = rows > 0 ? (row - block * rows) / kTileKv : kv_tile;
  }
  FA3_DEV float next(const FwdScale& scale) {
    if (scale.data == nullptr) return 1.f;
    const float value = ptx::ld_global(at);
    if (left-- == 0) {
      at -= scale.row;
      left = scale.block_rows / kTileKv - 1;
    }
    return value;
  }
};

// Scales of K and V that change with the keys, as a consumer goes through the KV tiles. `load`
// reads those of the next tile, in front of a GEMM that hides it; `scale_p` follows when P is that
// tile's. Here: none that do, as a head has one scale or tensors none.
template <FwdConfig kCfg>
struct NoScales {
  FA3_DEV void begin(const FwdArgs&, const FwdWork&, i32, i32) {}
  FA3_DEV void load(const FwdArgs&) {}
  FA3_DEV void scale_scores(ptx::Acc<kCfg.tile.kv>&) const {}
  FA3_DEV void scale_p(ptx::Acc<kCfg.tile.kv>&) {}
  // The factor of a row's scores, with the tile's.
  FA3_DEV PerRow times_k(const PerRow& factor) const { return factor; }
  // O and P·V of this tile, of element i of a part.
  FA3_DEV float add_pv(float o, float pv, int) const { return o + pv; }
};

template <FwdConfig kCfg, KvScales kOf = kCfg.scores.kv_scales>
struct KvScalesOf : NoScales<kCfg> {};

template <FwdConfig kCfg>
struct KvScalesOf<kCfg, KvScales::kTiles> {
  BlockWalk<kCfg.tile.kv> of_k, of_v;
  float k;       // a factor of the tile's scores
  PerRow v;      // factors of P·V
  float next_v;  // the same, for the tile of k

  FA3_DEV void begin(const FwdArgs& args, const FwdWork& work, i32, i32 kv_tile) {
    of_k.begin(args.k_scale, work, kv_tile);
    if constexpr (kCfg.types.v8()) of_v.begin(args.v_scale, work, kv_tile);
  }
  FA3_DEV void load(const FwdArgs& args) {
    k = of_k.next(args.k_scale);
    if constexpr (kCfg.types.v8()) next_v = of_v.next(args.v_scale);
  }
  FA3_DEV void scale_scores(ptx::Acc<kCfg.tile.kv>&) const {}
  FA3_DEV void scale_p(ptx::Acc<kCfg.tile.kv>&) { v = {{next_v, next_v}}; }
  FA3_DEV PerRow times_k(const PerRow& factor) const { return {{factor[0] * k, factor[1] * k}}; }
  FA3_DEV float add_pv(float o, float pv, int i) const { return ptx::fma(pv, v[i / 2 % 2], o); }
};

// The scales of a tile's keys: lane l has those of keys l, l + 32, …
template <i32 kTileKv>
struct KeyScales {
  static constexpr int kGroups = (kTileKv + 31) / 32;
  float group[kGroups];

  FA3_DEV static const float* first_of(const FwdScale& scale, const FwdWork& work) {
    return scale.data + work.batch * scale.batch + work.head / scale.group_size * scale.head +
           (scale.by_total_row ? work.kv_begin * scale.row : 0);
  }
  FA3_DEV void read(const FwdScale& scale, const float* first, i32 tile, i32 used) {
    FA3_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const i32 row = min(kTileKv * tile + 32 * g + static_cast<i32>(ptx::lane_index()), used - 1);
      i32 block = row;
      if (!scale.by_total_row)
        block = scale.block_rows > 0 ? min(row / scale.block_rows, scale.blocks - 1) : 0;
      group[g] = scale.data == nullptr ? 1.f : ptx::ld_global(first + block * scale.row);
    }
  }
  // f(index of the upper row's score, scale) for each of the thread's columns.
  template <class F>
  FA3_DEV void for_columns(const F& f) const {
    FA3_UNROLL
    for (int c = 0; c < kTileKv; c += 8) {
      FA3_UNROLL
      for (int n = 0; n < 2; ++n) {
        const u32 from = static_cast<u32>(c % 32 + n) + fragment_column(ptx::lane_index());
        f(c / 2 + n, ptx::shfl_idx(group[c / 32], from));
      }
    }
  }
  // P · scale of V as an operand that E4M3 holds as well as P: by a power of two for each row, that
  // puts its largest at 2^7 to 2^8. Returns the inverses, factors of P·V. P is 0 where a key is not
  // seen, so that its scale counts for nothing; one that is NaN reaches the rows that see its key.
  template <class P>
  FA3_DEV PerRow scale_p(P& scaled, const P& p) const {
    KeyScales least;  // P reaches 2^8, and P · scale no more than FP32 does
    FA3_UNROLL
    for (int g = 0; g < kGroups; ++g) least.group[g] = group[g] * 0x1p-8f;
    static_assert(kMostLog2 == 8);
    float most[2] = {0.f, 0.f};
    least.for_columns([&](int i, float scale) {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float x = p[i + 2 * h] == 0 ? 0.f : p[i + 2 * h] * scale;
        most[h] = ptx::max(most[h], x);
        scaled[i + 2 * h] = x;
      }
    });
    PerRow inverse;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      most[h] = ptx::max(most[h], ptx::shfl_xor(most[h], 1));
      most[h] = ptx::max(most[h], ptx::shfl_xor(most[h], 2));
      // 2^126 at most, whose inverse is normal.
      const u32 exponent = max(ptx::bits_as<u32>(most[h]) >> 23, 8u);
      const float by = ptx::bits_as<float>((261 - exponent) << 23);
      inverse.row[h] = ptx::bits_as<float>((exponent + 1) << 23);
      FA3_UNROLL
      for (int i = 2 * h; i < kTileKv / 2; i += 4) scaled[i] *= by, scaled[i + 1] *= by;
    }
    return inverse;
  }
};

template <FwdConfig kCfg>
struct KvScalesOf<kCfg, KvScales::kKeys> {
  using Keys = KeyScales<kCfg.tile.kv>;
  const float *first_k, *first_v;  // of a head of a sequence
  i32 tile, used;
  Keys k, of_v;
  PerRow v;  // factors of P·V

  FA3_DEV void begin(const FwdArgs& args, const FwdWork& work, i32, i32 kv_tile) {
    tile = kv_tile, used = work.kv_used;
    first_k = Keys::first_of(args.k_scale, work), first_v = Keys::first_of(args.v_scale, work);
  }
  FA3_DEV void load(const FwdArgs& args) {
    k.read(args.k_scale, first_k, tile, used);
    if constexpr (kCfg.types.v8()) of_v.read(args.v_scale, first_v, tile, used);
    --tile;
  }
  FA3_DEV void scale_scores(ptx::Acc<kCfg.tile.kv>& s) const {
    k.for_columns([&](int i, float scale) { s[i] *= scale, s[i + 2] *= scale; });
  }
  FA3_DEV void scale_p(ptx::Acc<kCfg.tile.kv>& p) {
    if constexpr (kCfg.types.v8()) v = of_v.scale_p(p, p);
  }
  FA3_DEV PerRow times_k(const PerRow& factor) const { return factor; }
  FA3_DEV float add_pv(float o, float pv, int i) const { return ptx::fma(pv, v[i / 2 % 2], o); }
};

// Where they change along head_dim, too: read when they are needed (columns.h).
template <FwdConfig kCfg>
struct ColumnScales : NoScales<kCfg> {
  using Keys = KeyScales<kCfg.tile.kv>;
  const float *q[2], *k, *v;  // of this thread's two rows, of a head of a sequence
  i32 used;

  FA3_DEV void begin(const FwdArgs& args, const FwdWork& work, i32 row, i32) {
    used = work.kv_used;
    k = Keys::first_of(args.k_scale, work), v = Keys::first_of(args.v_scale, work);
    FA3_UNROLL
    for (int h = 0; h < 2; ++h)
      q[h] = scale_place(args.q_scale, work, work.q_begin, min(row + 8 * h, work.q_used - 1));
  }
  FA3_DEV PerRow of_rows(const FwdArgs& args, int column) const {
    const i32 block = column_block(args.q_columns, column);
    PerRow scale{{1.f, 1.f}};
    FA3_UNROLL
    for (int h = 0; h < 2; ++h)
      if (args.q_scale.data != nullptr) scale.row[h] = ptx::ld_global(q[h] + block);
    return scale;
  }
  // Of a KV tile whose blocks of rows have whole tiles.
  FA3_DEV float of_tile(const FwdScale& scale, const FwdColumns& columns, const float* first,
                        i32 tile, int column) const {
    if (scale.data == nullptr) return 1.f;
    const i32 rows = scale.block_rows;
    const i32 block = rows > 0 ? min(kCfg.tile.kv * tile / rows, scale.blocks - 1) : 0;
    return ptx::ld_global(first + block * scale.row + column_block(columns, column));
  }
  FA3_DEV Keys of_keys(const FwdScale& scale, const FwdColumns& columns, const float* first,
                       i32 tile, int column) const {
    Keys keys;
    keys.read(scale, first + column_block(columns, column), tile, used);
    return keys;
  }
};

template <FwdConfig kCfg>
struct ScalesOf {
  using Type = KvScalesOf<kCfg>;
};
template <FwdConfig kCfg>
requires(kCfg.scores.column_scales()) struct ScalesOf<kCfg> {
  using Type = ColumnScales<kCfg>;
};

// What the scores of a thread's two rows, from `row` on, are multiplied by, without scales of
// blocks of K or of columns. A tile without keys or rows that count has no scales to be read.
template <FwdConfig kCfg>
FA3_DEV PerRow code_scale(const FwdArgs& args, const FwdWork& work, i32 row) {
  PerRow scale{{1.f, 1.f}};
  if (kCfg.scores.column_scales() || work.range.empty()) return scale;
  const float of_k = kCfg.scores.block_scales() ? 1.f : scale_at(args.k_scale, work, 0, 0);
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    const i32 r = min(row + 8 * h, work.q_used - 1);
    scale.row[h] = of_k * scale_at(args.q_scale, work, work.q_begin, r);
  }
  return scale;
}

// What k_offset adds to the scores of a row that counts, in units of the natural logarithm.
FA3_DEV float score_offset_at(const FwdArgs& args, const FwdWork& work, i32 row) {
  if (args.score_offset == nullptr || work.range.empty()) return 0.f;
  const i64 first = args.q_axis.cu_seqlens != nullptr ? work.q_begin : 0;
  return ptx::ld_global(args.score_offset + work.batch * args.score_offset_batch +
                        work.head * args.score_offset_head + first + row);
}

// A factor of scores that may be masked already. NaN stays: INT8 codes have none, so the scale of a
// block says that it held one.
FA3_DEV float finite_factor(float factor) {
  return -ptx::max_nan(-ptx::max_nan(factor, 0x1p-126f), -0x1.fffffep127f);
}

}  // namespace fa3::sm90
