// SPDX-License-Identifier: BSD-3-Clause
// mask.h — which keys a query sees: one band around the bottom-right diagonal says full, causal and
// window alike.
#pragma once

#include "device/types.h"

namespace fa3 {

// Query i is at key position p = i + (len_kv − len_q) and sees keys j with p − left ≤ j ≤ p +
// right. kUnbounded on a side means no limit there. full = both unbounded; causal = {kUnbounded,
// 0}.
template <class T>
struct BandOf {
  static constexpr T kUnbounded = -1;
  T left = kUnbounded;
  T right = kUnbounded;
};
using Band = BandOf<i64>;
using Band32 = BandOf<i32>;  // for lengths below 2^30

// Lengths of one sequence: queries and keys that count.
struct SeqLens {
  i64 q = 0;
  i64 kv = 0;

  FA3_HD constexpr i64 diagonal(i64 query) const { return query + kv - q; }  // p, may be negative
};

// Does query see key? Both inside the sequence.
FA3_HD constexpr bool sees(Band band, SeqLens len, i64 query, i64 key) {
  const i64 p = len.diagonal(query);
  return (band.left == Band::kUnbounded || p - key <= band.left) &&
         (band.right == Band::kUnbounded || key - p <= band.right);
}

}  // namespace fa3
