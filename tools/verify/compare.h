// SPDX-License-Identifier: BSD-3-Clause
// compare.h — is an output as exact as it should be?
//
// The rule, for every element of every row of an output:
//   NaN, +Inf and −Inf are where the FP64 result has them, and nowhere else;
//   |ours − fp64| ≤ 2 · (largest |naive − fp64| of the row) + floor,
//   floor = kFloor · (largest spread of the row) + smallest normal number of the output's type.
//
// A row is the head_dim elements of one token and head, or one element of LSE: small rows are
// judged by their own size, not by the largest row of the tensor. naive and spread: naive.h. A row
// of few elements may have a naive error near 0 by chance: below 64 elements kFloor doubles. A row
// whose spread overflows FP32 has no bound: any finite values pass, and the output counts as blind.
// Where scores may do so, which makes the naive result NaN, NaN and Inf pass too. So does Inf where
// the result and the bound together are beyond the range of the output's type.
#pragma once

#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/naive.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

inline constexpr double kFloor = 2;

// Bounds so wide, relative to the values, that being within them says next to nothing.
inline constexpr double kBlind = 0.5;

// How one output compares. max_err and bound are those of the element that comes closest to its
// bound or exceeds it most; 0 and 0 for an output without elements.
struct OutputResult {
  std::string name;  // "o", "lse", "dq", "dk", "dv"
  bool ok = true;
  double max_err = 0;  // NaN or Inf where those are in the wrong place
  double bound = 0;
  std::string where{};  // "[0, 17, 3, 5]": index into the output
  double ours = 0;
  double reference = 0;
  // Root mean square of the bounds over that of the reference; at 1 zeros would pass too. Inf when
  // a row has no bound, else 0 when the reference has zeros only. NaN when it has NaN and nothing
  // finite.
  double width = 0;
  bool blind() const { return !(width < kBlind); }
};

// fp64: F32 tensor of the reference's results.
OutputResult compare_output(const std::string& name, const fa3_tensor& ours, const fa3_tensor& fp64,
                            const Estimate& naive);

// Judges outputs that some backend has written: computes the same inputs on the reference backend
// and naively. Throws std::runtime_error with the library's message when the reference declines.
std::vector<OutputResult> compare_forward(const fa3_forward_args& args);
std::vector<OutputResult> compare_backward(const fa3_backward_args& args);

// "dq: error 1.2e-2 exceeds 3.4e-3 at [0, 17, 3, 5]: ours 0.5, fp64 0.488"; "o: ok, error … of …".
std::string to_text(const OutputResult& result);

}  // namespace fa3::verify
