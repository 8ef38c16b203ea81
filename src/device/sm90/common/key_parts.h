// SPDX-License-Identifier: BSD-3-Clause
// key_parts.h — the parts of a sequence's keys where the bits of a row may depend on its own
// sequence and position alone (fa3_forward_args::batch_invariant). Parts begin at multiples of a
// fixed number of keys, tiles at multiples of another; a row's maximum, sum and O are computed part
// by part from the last keys to the first, and folded in that order. Forward and decode kernel do
// the same arithmetic, so that a row has the same bits from both.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/math.h"
#include "device/types.h"

namespace fa3::sm90 {

// What a row has seen: its reference maximum and the sum of exponentials relative to it.
struct RowTotal {
  float max, sum;
};
// What O of the parts so far, and of the part that comes, is multiplied by.
struct FoldWeights {
  float total, part;
};
// Adds a part to a row's total. A part without keys changes no bit.
FA3_DEV FoldWeights fold(RowTotal& total, const RowTotal& part, float scale_log2) {
  const float grown = ptx::max(total.max, part.max);
  const auto weight = [&](float max) {
    return max == -kInf ? 0.f : ptx::ex2((max - grown) * scale_log2);
  };
  const FoldWeights weights{weight(total.max), weight(part.max)};
  total = {grown, ptx::fma(part.sum, weights.part, total.sum * weights.total)};
  return weights;
}
// A column of O.
FA3_DEV float fold(float total, float part, const FoldWeights& weights) {
  return ptx::fma(part, weights.part, total * weights.total);
}

}  // namespace fa3::sm90
