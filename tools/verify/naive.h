// SPDX-License-Identifier: BSD-3-Clause
// naive.h — attention in its simplest form, in the inputs' precision: a yardstick for errors.
//
// Forward: S = Q·Kᵀ accumulated in FP32 and rounded to the input type, ALiBi and softmax in FP32
// with P rounded, O = P·V accumulated in FP32 and rounded. LSE from the unrounded S. Backward: dP =
// dO·Vᵀ rounded, dS rounded, the three GEMMs accumulated in FP32 and rounded; O is the rounded
// one of its own forward.
//
// Each element comes with its spread: the rounding error to expect from first-order propagation
// when the errors of the terms are independent, √Σ (term · its relative error)². It is what remains
// of the yardstick where the naive error happens to be small. A term's relative error is the unit
// roundoff of a 16-bit input type, 2^-23 for F32, and what comes from the errors of its score;
// in addition every P may be off by 2^-149, FP32's least step.
#pragma once

#include "fa3/fa3.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// A computed output: F32 tensors, dense in the output's shape.
struct Estimate {
  Tensor value;
  Tensor spread;
};

struct NaiveForward {
  Estimate o, lse;
};
struct NaiveBackward {
  Estimate dq, dk, dv;
};

// args as for fa3_forward and fa3_backward, valid; outputs in them are not touched.
NaiveForward naive_forward(const fa3_forward_args& args);
NaiveBackward naive_backward(const fa3_backward_args& args);

}  // namespace fa3::verify
