// SPDX-License-Identifier: BSD-3-Clause
// fwd_functors.h — functors of the forward kernel that no product kernel has: a term of the row's
// sum and a weight of P (device/warp/element.h).
#pragma once

#include "device/sm90/fwd/fwd.cuh"

namespace fa3::kit {

// A term for each head: comparable to the keys' scores, far below and far above them, none.
struct HeadTerm {
  FA3_HD static constexpr float of_head(i32 head) {
    return head == 0 ? 1.5f : head == 1 ? -200.f : head == 2 ? 200.f : -kInf;
  }
  FA3_DEV static float score(const ElementArgs&, const ElementPlace& place, i32) {
    return of_head(place.head);
  }
};

// Drops every other key, as seen from a query, and doubles the others.
struct EveryOtherKey {
  struct Row {
    i32 parity;
  };
  FA3_HD static constexpr bool keeps(i32 query, i32 key) { return (query + key) % 2 == 0; }
  FA3_DEV static Row row(const ElementArgs&, const ElementPlace&, i32 row) { return {row % 2}; }
  FA3_DEV static float weight(const Row& row, i32 key) {
    return keeps(row.parity, key) ? 2.f : 0.f;
  }
};

using WithTerm = Functors<SameScore, EveryKey, HeadTerm>;
using WithWeight = Functors<SameScore, EveryKey, NoTerm, EveryOtherKey>;

template <sm90::FwdConfig kCfg, class F>
FA3_KERNEL(kCfg.threads(), 1)
void fwd_with(FA3_GRID_CONSTANT const sm90::FwdArgs args) {
  sm90::run_fwd<kCfg, typename sm90::OrderOf<kCfg>::Type, F>(args);
}

}  // namespace fa3::kit
