// SPDX-License-Identifier: BSD-3-Clause
// combine.h — calls of fa3_combine made from a few numbers and a seed, and what their outputs owe
// to the formula in FP64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/compare.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// The comment after a field is its flag of `fa3 check --combine`.
struct CombineProblem {
  int64_t parts = 3;                    // --combine
  int64_t batch = 1;                    // --batch
  int64_t seqlen = 1;                   // --seqlen-q
  int64_t heads = 1;                    // --heads-q
  int64_t dim = 64;                     // --head-dim
  bool packed = false;                  // --varlen-q: (parts, seqlen, heads, dim), without a batch
  int32_t in = FA3_F32, out = FA3_F32;  // --dtype, --out-dtype
  bool wants_lse = true;                // --no-lse
  int32_t sink_dtype = 0;  // --with sinks: of sinks that weigh about as much as parts; 0 = none
  // --layout: the dimensions of O in memory, below its parts; {} = as they come
  std::vector<int> order{};
  int64_t padding = 0;    // elements behind a row of O
  int64_t alignment = 0;  // --alignment
  bool by_rows = false;   // LSE as (…, seqlen, heads) in memory
  double hidden = 0.2;    // the share of parts without keys; a quarter of it: of rows without any
  double spread = 3;      // --magnitude: standard deviation of LSE
  double shift = 0;       // of all LSE
  uint64_t seed = 0;      // --seed
};

struct CombineTensors {
  Tensor o_parts, lse_parts, o, lse, sinks;  // lse also where it is not asked for

  const Tensor* find(const std::string& name) const;
};

// O of parts without keys is NaN, Inf and other numbers that nobody may read.
CombineTensors make_combine(const CombineProblem& problem);
fa3_combine_args combine_args(const CombineProblem& problem, const CombineTensors& tensors);

// Indices of row (b, i, h); part −1: of the outputs, which have none.
Index combine_o_index(const CombineProblem& p, int64_t part, int64_t b, int64_t i, int64_t h,
                      int64_t column);
Index combine_lse_index(const CombineProblem& p, int64_t part, int64_t b, int64_t i, int64_t h);

// Judges outputs by the rule of compare.h. Naive are the same sums in FP32, one part after another;
// a row's spread is 2^-22 of Σ wᵢ·|Oᵢ| and the rounding of the output.
std::vector<OutputResult> compare_combine(const fa3_combine_args& args);

}  // namespace fa3::verify
