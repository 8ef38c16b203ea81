// SPDX-License-Identifier: BSD-3-Clause
// softmax_variant.h — how the online softmax spends its instructions.
#pragma once

namespace fa3 {

// Ways to the same result that cost different instructions.
struct SoftmaxVariant {
  // O is rescaled only when the maximum of some row of the warp has grown by more than kLazyLog2;
  // until then the old maximum serves, and P reaches 2^kLazyLog2.
  bool lazy_rescale = false;
  // Maxima as integers, three at a time: scores of one row compare as their bits do unless all are
  // negative, and then the pass is repeated.
  bool integer_max = false;

  constexpr bool operator==(const SoftmaxVariant&) const = default;
};

}  // namespace fa3
