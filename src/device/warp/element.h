// SPDX-License-Identifier: BSD-3-Clause
// element.h — the seam for what a query and a key have beyond softcap and band: functors of one
// score and of one weight. They never see a fragment: this file, and weights.h of a
// kernel, map them onto the part of S and of P that a thread has.
//
//   struct Score {
//     struct Row {…};    of a query, made once per Q tile      Row row(args, place, row)
//     struct Tile {…};   of a query and a KV tile              Tile tile(row, first key)
//     float score(s, tile, n)                                  s of key first + n; n is constant
//   };
//   struct Mask {
//     Row row(args, place, row);  Key key(args, place, key)    32 bits of a query, and of a key
//     bool sees(row, key)
//     TileRange tiles<tile_kv>(args, place, range, row, rows)  of range, the KV tiles that queries
//   };                                                         [row, row + rows) visit. Whole warp
//   struct Weight {      of P behind the sum, which does not see it, as dropout is
//     struct Row {…};                                          Row row(args, place, row)
//     float weight(row, key)
//   };
//
// All members are static. Keys and queries count within their sequence; functors are asked about
// those that count (seqused), and their answers for others are not used. Scores are multiplied by
// RowSoftmax::scale_log2 afterwards. What a functor reads is in ElementArgs.
#pragma once

#include "device/attn/tile_range.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/types.h"
#include "device/warp/fragment.h"
#include "device/warp/score.h"

namespace fa3 {

// Tensors of functors; null = absent. Strides between batch entries in elements; the last
// dimension, heads or rows, is contiguous.
struct ElementArgs {
  const float* alibi_slopes;
  i64 slope_batch;
  float slope_factor;  // from natural units into those of scores after ScoreFunction
  const i32 *ids_q, *ids_kv;
  i64 id_q_batch, id_kv_batch;
};

// The head and the sequence of a Q tile. q_begin, kv_begin: the sequence's first row in a varlen
// tensor, else 0.
struct ElementPlace {
  i32 batch, head;
  i32 q_begin, kv_begin;
  i32 q_used, kv_used;
};

// Functors that change nothing.
struct SameScore {
  static constexpr bool kActive = false;
  struct Row {};
};
struct EveryKey {
  static constexpr bool kActive = false;
  struct Row {};
};
struct NoWeight {};

// The functors of a kernel.
template <class ScoreFunctor = SameScore, class MaskFunctor = EveryKey,
          class WeightFunctor = NoWeight>
struct Functors {
  using Score = ScoreFunctor;
  using Mask = MaskFunctor;
  using Weight = WeightFunctor;
};

// Applies a score functor to a tile from key first_key on.
template <class Score, int N>
FA3_DEV void apply_scores(ptx::Acc<N>& s, const typename Score::Row (&rows)[2], i32 first_key) {
  const i32 first = first_key + static_cast<i32>(fragment_column(ptx::lane_index()));
  const typename Score::Tile tiles[2] = {Score::tile(rows[0], first), Score::tile(rows[1], first)};
  FA3_UNROLL
  for (int i = 0; i < N / 2; ++i) s[i] = Score::score(s[i], tiles[i / 2 % 2], 8 * (i / 4) + i % 2);
}

// Sets the scores of keys that Mask hides to −∞. Sets bit h of `seen` if row h sees a key that Mask
// and shown(h, column) both allow; column counts from the thread's first. Each lane loads the 32
// bits of every 32nd key, and the others get them by shuffles: a thread's columns are spread over
// the tile.
template <class Mask, int N, class T, class Shown>
FA3_DEV void hide_keys(ptx::Acc<N, T>& s, const typename Mask::Row (&rows)[2], const Shown& shown,
                       const ElementArgs& args, const ElementPlace& place, i32 kv_tile, u32& seen,
                       Where where = Where::here()) {
  constexpr int kGroups = (N + 31) / 32;
  const u32 lane = ptx::lane_index();
  typename Mask::Key keys[kGroups];
  FA3_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    const i32 key = kv_tile * N + 32 * g + static_cast<i32>(lane);
    keys[g] = Mask::key(args, place, min(key, place.kv_used - 1));
  }
  FA3_UNROLL
  for (int c = 0; c < N; c += 8) {  // columns of the tile from the thread's first on
    FA3_UNROLL
    for (int n = 0; n < 2; ++n) {
      const u32 from = static_cast<u32>(c % 32 + n) + fragment_column(lane);
      const auto key = ptx::shfl_idx(keys[c / 32], from, 32, ~0u, where);
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        const bool sees = Mask::sees(rows[h], key);
        if (!sees) set_number(s[c / 2 + 2 * h + n], -kInf);
        if (sees && shown(h, c + n)) seen |= 1u << h;
      }
    }
  }
}

}  // namespace fa3
