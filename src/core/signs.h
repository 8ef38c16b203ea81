// SPDX-License-Identifier: BSD-3-Clause
// signs.h — the signs of incoherent processing, column by column.
#pragma once

#include "core/problem.h"
#include "device/attn/random_sign.h"

namespace fa3 {

// Both columns of a rotary pair have one sign.
inline float sign_of_column(const Problem& p, int64_t column) {
  const Rotation& r = p.rotation;
  const int64_t width = r.rotary_dim > 0 ? r.rotary_dim : p.head_dim_qk / 2 * 2;
  const int64_t pair = column >= width  ? column
                       : r.rotary_pairs ? column / 2
                                        : column % (width / 2);
  return random_sign(r.seed, pair);
}

}  // namespace fa3
