// SPDX-License-Identifier: BSD-3-Clause
// terms.h — what comes behind the exponentials of a row: a term of its sum, and weights of P
// (warp/element.h). Without a functor neither has state or code.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/math.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/sm90/common/work.h"
#include "device/warp/element.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

// The term of each of a thread's two rows. A row that sees no key has LSE = term and O = 0; a row
// beyond the sequence has no term.
template <class Functor>
struct RowTerm {
  float score[2];  // less what k_offset adds to LSE; −∞: none
  float keys[2];   // the part of the sum that is of keys

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const i32 row = c.row_of(work) + 8 * h;
      float shift = 0;
      score[h] = -kInf;
      if (row >= work.q_used) continue;
      c.scores.add_offset(shift, c, work, row);
      score[h] = Functor::score(c.args.elements, place_of(c.args, work), row) - shift;
    }
  }
  template <class C>
  FA3_DEV void add(C& c) {
    auto& softmax = c.tile.softmax;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float of_keys = softmax.sum[h];
      softmax.add(h, score[h], c.scores.scale_log2(c.args));
      keys[h] = of_keys * ptx::rcp(softmax.sum[h]);
    }
  }
  // V's offset, which every key has and the term has not, as a part of O.
  FA3_DEV float offset(int h, float of_v) const { return of_v * keys[h]; }
  // A term that is far above all keys is more than the sum holds. A sum of NaN stays one.
  FA3_DEV float lse(int h, bool nothing, float of_sum) const {
    return nothing || of_sum < score[h] ? score[h] : of_sum;
  }
  FA3_DEV bool has_lse(int h, bool nothing) const { return !nothing || score[h] != -kInf; }
};
template <>
struct RowTerm<NoTerm> {
  template <class C>
  FA3_DEV void begin(const C&, const FwdWork&) {}
  template <class C>
  FA3_DEV void add(const C&) {}
  FA3_DEV float offset(int, float of_v) const { return of_v; }
  FA3_DEV float lse(int, bool, float of_sum) const { return of_sum; }
  FA3_DEV bool has_lse(int, bool nothing) const { return !nothing; }
};

// Weights of a tile's P. V's offset, which only 8 bits have, would not see them.
template <class Functor>
struct PWeight {
  typename Functor::Row rows[2];

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work) {
    static_assert(!C::kConfig.types.v8(), "weights of P take V of 16 bits");
    FA3_UNROLL
    for (int h = 0; h < 2; ++h)
      rows[h] = Functor::row(c.args.elements, place_of(c.args, work), c.row_of(work) + 8 * h);
  }
  template <int N>
  FA3_DEV void apply(i32 kv_tile, ptx::Acc<N>& p) const {
    const i32 first = kv_tile * N + static_cast<i32>(fragment_column(ptx::lane_index()));
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i)
      p[i] *= Functor::weight(rows[i / 2 % 2], first + 8 * (i / 4) + i % 2);
  }
};
template <>
struct PWeight<NoWeight> {
  template <class C>
  FA3_DEV void begin(const C&, const FwdWork&) {}
  template <class P>
  FA3_DEV void apply(i32, const P&) const {}
};

}  // namespace fa3::sm90
