// SPDX-License-Identifier: BSD-3-Clause
// fwd_functors.h — a functor of the forward kernel that no product kernel has: a weight of P
// (device/warp/element.h).
#pragma once

#include "device/sm90/fwd/fwd.cuh"

namespace fa3::kit {

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

using WithWeight = Functors<SameScore, EveryKey, EveryOtherKey>;

template <sm90::FwdConfig kCfg, class F>
FA3_KERNEL(kCfg.threads(), 1)
void fwd_with(FA3_GRID_CONSTANT const sm90::FwdArgs args) {
  sm90::run_fwd<kCfg, typename sm90::OrderOf<kCfg>::Type, F>(args);
}

}  // namespace fa3::kit
