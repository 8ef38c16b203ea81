// SPDX-License-Identifier: BSD-3-Clause
// mask.h — which keys a query sees: one band around the bottom-right diagonal says full, causal and
// window alike, and chunks cut it.
#pragma once

#include "device/divider.h"
#include "device/types.h"

namespace fa3 {

// Chunks of so many keys; 0 = there are none.
template <class T>
struct Chunks {
  T keys = 0;

  FA3_HD static constexpr Chunks of(T keys) { return {keys}; }
  FA3_HD constexpr bool any() const { return keys > 0; }
  FA3_HD constexpr T size() const { return keys; }
  FA3_HD constexpr T first(T p) const { return p - p % keys; }  // of the chunk of p ≥ 0
};
// For kernels: a division takes them 20 instructions.
template <>
struct Chunks<i32> {
  Divider by{0, 0, 31};

  static constexpr Chunks of(i32 keys) {
    return keys > 0 ? Chunks{Divider::by(static_cast<u32>(keys))} : Chunks{};
  }
  FA3_HD constexpr bool any() const { return by.divisor > 0; }
  FA3_HD constexpr i32 size() const { return static_cast<i32>(by.divisor); }
  FA3_HD constexpr i32 first(i32 p) const { return by.quotient(p) * size(); }
};

// Query i is at key position p = i + (len_kv − len_q) and sees keys j with p − left ≤ j ≤ p +
// right. kUnbounded on a side means no limit there. full = both unbounded; causal = {kUnbounded,
// 0}.
template <class T>
struct WholeBandOf {
  static constexpr T kUnbounded = -1;
  T left = kUnbounded;
  T right = kUnbounded;
};

// Of these keys, where there are chunks, those that lie in p's own.
template <class T>
struct BandOf : WholeBandOf<T> {
  Chunks<T> chunks{};

  // The keys of the chunk of position p; before key 0 there are none. No end moves up where p moves
  // down.
  FA3_HD constexpr Range<T> chunk_of(T p) const {
    if (p < 0) return {0, 0};
    const T first = chunks.first(p);
    return {first, first + chunks.size()};
  }
};
using Band = BandOf<i64>;
using Band32 = BandOf<i32>;            // for lengths below 2^30
using WholeBand32 = WholeBandOf<i32>;  // of kernels that know that there are no chunks

// Lengths of one sequence: queries and keys that count.
struct SeqLens {
  i64 q = 0;
  i64 kv = 0;

  FA3_HD constexpr i64 diagonal(i64 query) const { return query + kv - q; }  // p, may be negative
};

// Does query see key? Both inside the sequence.
FA3_HD constexpr bool sees(Band band, SeqLens len, i64 query, i64 key) {
  const i64 p = len.diagonal(query);
  if (band.chunks.any() && intersect(band.chunk_of(p), {key, key + 1}).empty()) return false;
  return (band.left == Band::kUnbounded || p - key <= band.left) &&
         (band.right == Band::kUnbounded || key - p <= band.right);
}

}  // namespace fa3
