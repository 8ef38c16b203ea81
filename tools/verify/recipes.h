// SPDX-License-Identifier: BSD-3-Clause
// recipes.h — attention on 16-bit inputs by way of 8 bits, as methods of the error experiment:
// fa3_quantize, then a forward on the codes.
#pragma once

#include "tools/verify/outliers.h"

namespace fa3::verify {

// Rows that share a scale; all columns of a head do.
inline constexpr int64_t kOfTensor = -1, kOfHead = 0;

struct Coding {
  int32_t qk = FA3_F8_E4M3;  // or I8
  int32_t v = FA3_F8_E4M3;   // or NONE: v stays as it is
  int64_t rows_q = kOfTensor, rows_kv = kOfTensor;
  bool turned = false;  // q and k, by signs and the largest Hadamard transform
  bool means = false;   // taken off k and v
};

// quantizer and attention are contexts in host memory and outlive the method; they may be the same.
// Throws std::runtime_error with the library's message when one declines.
Method coded_method(std::string name, int32_t dtype, const Coding& coding, fa3_context* quantizer,
                    fa3_context* attention);

// A forward whose precision is not the default.
Method precision_method(std::string name, int32_t dtype, fa3_precision precision,
                        fa3_context* context);

}  // namespace fa3::verify
