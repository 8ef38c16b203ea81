// SPDX-License-Identifier: BSD-3-Clause
// recipe.h — what fa3_forward_args::precision means: which of q, k and v become 8 bits, how, and
// the 8-bit problem that is then computed.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "core/problem.h"
#include "plan/part.h"
#include "plan/slices.h"

namespace fa3 {

// The order is that of the tensors; one that keeps its type has no quantisation.
struct Recipe {
  Part attention;                  // on the codes
  std::array<TensorId, 3> inputs;  // of the quantisations: kQ, kK, perhaps kV
  std::array<Part, 3> quantizations;
  int count = 0;
  std::vector<PlacedSlice> slices;  // codes, scales and offsets, which begin the workspace
  size_t bytes = 0;                 // of all of them
};

// Rows that share a scale, as ScaleBlock has them; INT8 q has one for each row.
struct RecipeRows {
  int64_t q, k, v;
};

// Of a problem whose precision is not the default.
Recipe make_recipe(const Problem& problem, const RecipeRows& rows);

// "fp8", "eight_bit", "eight_bit_accurate"; "default".
const char* precision_name(fa3_precision precision);

}  // namespace fa3
