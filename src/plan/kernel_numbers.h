// SPDX-License-Identifier: BSD-3-Clause
// kernel_numbers.h — a problem's mask and numbers in the types of a GPU's kernels, of any
// architecture.
#pragma once

#include "core/problem.h"
#include "device/attn/kinds.h"
#include "device/attn/mask.h"

namespace fa3 {

inline bool is_16_bit(fa3_dtype dtype) { return dtype == FA3_F16 || dtype == FA3_BF16; }

// The most rows that a sequence can have.
int64_t most_rows(const SeqAxis& axis);

// The mask as a band.
Band exact_band_of(const Problem& problem);
// That in 32 bits; a bound beyond every query's keys is dropped.
Band32 band_of(const Problem& problem);
MaskKind mask_of(const Band32& band);

// Masked scores are −inf, and what multiplies them must not become 0 in FP32: −inf · 0 is NaN. Nor
// may 0 meet an infinite factor.
float scale_in_fp32(double scale);

}  // namespace fa3
