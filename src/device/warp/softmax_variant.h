// SPDX-License-Identifier: BSD-3-Clause
// softmax_variant.h — how the online softmax spends its instructions.
#pragma once

namespace fa3 {

// Ways to the same result that cost different instructions.
struct SoftmaxVariant {
  // O is rescaled only when the maximum of some row of the warp has grown by more than
  // 2^(kMostLog2 − p_log2); until then the old maximum serves, and P reaches 2^kMostLog2. Maxima
  // are taken as integers.
  bool lazy_rescale = false;
  // With lazy_rescale: each thread compares its own scores with the least one that calls for a new
  // maximum, and only where the warp has one are maxima exchanged: one vote in most tiles instead
  // of four shuffles and two votes.
  bool test_first = false;
  // P is multiplied by 2^p_log2, which O / sum cancels: 8-bit P begins to lose its least values
  // 2^15 below its greatest, and has none beyond 448.
  int p_log2 = 0;
  // What decides about a row's bits is the row alone: each rescales O by itself, and its sum is
  // added up in the order in which the decode kernel's threads have its keys (RowChains).
  bool per_row = false;
  // With test_first: the greatest score of each row is kept as well, which its maximum may be
  // below.
  bool keeps_greatest = false;

  constexpr bool operator==(const SoftmaxVariant&) const = default;
};

}  // namespace fa3
