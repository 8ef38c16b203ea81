// SPDX-License-Identifier: BSD-3-Clause
// score.h — what happens to the scores of a tile between QKᵀ and softmax: a function of the score
// itself, and the band mask, in place on a thread's part of the accumulator. element.h has the seam
// for others.
#pragma once

#include "device/attn/kinds.h"
#include "device/attn/tile_range.h"
#include "device/ptx/registers.h"
#include "device/warp/fragment.h"
#include "device/warp/softmax.h"

namespace fa3 {

// s → s, tanh(s·factor) or s·factor; RowSoftmax::scale_log2 holds what is then left to multiply.
template <ScoreKind kScore>
struct ScoreFunction {
  PerRow factor;

  template <int N>
  FA3_DEV void apply(ptx::Acc<N>& s) const {
    if constexpr (kScore != ScoreKind::kPlain) {
      FA3_UNROLL
      for (int i = 0; i < N / 2; ++i) {
        s[i] *= factor[i / 2 % 2];
        if constexpr (kScore == ScoreKind::kSoftcap) s[i] = ptx::tanh_approx(s[i]);
      }
    }
  }
  // tanh(s·factor + shift).
  template <int N>
  FA3_DEV void apply(ptx::Acc<N>& s, const PerRow& shift) const {
    static_assert(kScore == ScoreKind::kSoftcap, "others do not notice what all keys have");
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const int h = i / 2 % 2;
      s[i] = ptx::tanh_approx(ptx::fma(s[i], factor[h], shift[h]));
    }
  }
};

// The keys that a thread's two rows see, counted from the thread's first column of tile 0.
struct BandMask {
  i32 lo[2], hi[2];

  // row: of the sequence's queries, the first of the two; column: fragment_column of the thread.
  template <class Band>
  FA3_HD static constexpr BandMask of(Band band, i32 q_used, i32 kv_used, i32 row, i32 column) {
    BandMask mask{};
    for (int h = 0; h < 2; ++h) {
      const Range<i32> keys = keys_of_row(band, q_used, kv_used, row + 8 * h);
      const bool none = keys.empty() || row + 8 * h >= q_used;
      mask.lo[h] = (none ? 0 : keys.lo) - column;
      mask.hi[h] = (none ? 0 : keys.hi) - column;
    }
    return mask;
  }

  FA3_HD constexpr bool sees_nothing(int h) const { return lo[h] >= hi[h]; }

  // Does row h see the key `column` beyond the thread's first of a tile that begins at first_key?
  FA3_HD constexpr bool sees(int h, i32 column, i32 first_key) const {
    return lo[h] - first_key <= column && column < hi[h] - first_key;
  }

  // kLeft: rows may also have a first key other than 0.
  template <bool kLeft, int N, class T>
  FA3_DEV void apply(ptx::Acc<N, T>& s, i32 kv_tile) const {
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const int h = i / 2 % 2;
      const i32 column = 8 * (i / 4) + i % 2;  // beyond the thread's first
      const bool after = column >= hi[h] - kv_tile * N;
      const bool before = kLeft && column < lo[h] - kv_tile * N;
      if (after || before) set_number(s[i], -kInf);
    }
  }
};

}  // namespace fa3
