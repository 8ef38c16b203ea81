// SPDX-License-Identifier: BSD-3-Clause
// weights.h — what comes behind the exponentials of a row: weights of P (warp/element.h). Without a
// functor there is neither state nor code.
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/sm90/common/work.h"
#include "device/warp/element.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

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
