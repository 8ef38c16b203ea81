// SPDX-License-Identifier: BSD-3-Clause
// naive.h — attention in its simplest form, in the inputs' precision: a yardstick for errors.
//
// Forward: S = Q·Kᵀ accumulated in FP32 and rounded to the input type, ALiBi and softmax in FP32
// with P rounded, O = P·V accumulated in FP32 and rounded. LSE from the unrounded S. Backward: dP =
// dO·Vᵀ rounded, dS rounded, the three GEMMs accumulated in FP32 and rounded; O is the rounded
// one of its own forward. attn_mask is added as ALiBi is; dattn_mask sums unrounded P ∘ (dP − δ). A
// sink comes last, once P is rounded.
//
// Each element comes with its spread: the rounding error to expect from first-order propagation
// when the errors of the terms are independent, √Σ (term · its relative error)². It is what remains
// of the yardstick where the naive error happens to be small. A term's relative error is the unit
// roundoff of a 16-bit input type, 2^-23 for F32, and what comes from the errors of its score;
// but every P and dS may be off by 2^-149, FP32's least step, or 2^-126 of BF16, whose dot products
// take smaller operands as 0.
//
// Scores that may overflow FP32 in another order of the sum are NaN, and their spread with them.
//
// 8 bits, forward only, as a kernel computes them: scores of decoded values stay in FP32. Beside v
// of 16 bits P is rounded to that type. Beside F8_E4M3, P = e4m3(2^4·exp(s − row max))·2^-4 over
// the sum of the unrounded ones; then
//   - its relative error is 2^-4, but at least what the step of E4M3's subnormals makes it: 2^-14
//     of the row's largest P. A kernel whose maximum lags by up to 2^4 has P up to 2^8: finer;
//   - tensor cores cut the sum and the 32 terms of each step toward zero, 13 bits below the
//     leading one of the largest: Σ over steps of 2^-13·|sum so far|, and of what the terms lose on
//     average, at most as much each: of terms of one sign, as V with a mean makes them, all in one
//     direction. So it is added to the spread as it is, for a kernel that sums in tensor cores
//     from the first key to the last;
// Scores of F8_E4M3 are such sums too, of head_dim / 32 steps, each off by some 2^-13 of its
// largest term (root of the squares of its products; the sum so far). Scores of I8 are whole
// numbers, exact before scales; offsets of k are FP32 dot products. LSE is as for 16 bits, with
// these errors.
#pragma once

#include <string>

#include "fa3/fa3.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// A computed output: F32 tensors, dense in the output's shape.
struct Estimate {
  Tensor value;
  Tensor spread;
};

struct NaiveForward {
  Estimate o;
  Estimate lse, max_logit;  // {} = not asked for

  const Estimate& of(const std::string& output) const {
    return output == "o" ? o : output == "lse" ? lse : max_logit;
  }
};
struct NaiveBackward {
  Estimate dq, dk, dv;
  Estimate dattn_mask, dsinks;  // {} = not asked for

  const Estimate& of(const std::string& output) const {
    return output == "dq"       ? dq
           : output == "dk"     ? dk
           : output == "dv"     ? dv
           : output == "dsinks" ? dsinks
                                : dattn_mask;
  }
};

// args as for fa3_forward and fa3_backward, valid; outputs in them are not touched.
NaiveForward naive_forward(const fa3_forward_args& args);
NaiveBackward naive_backward(const fa3_backward_args& args);

}  // namespace fa3::verify
