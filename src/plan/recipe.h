// SPDX-License-Identifier: BSD-3-Clause
// recipe.h — what fa3_forward_args::precision means: which of q, k and v become 8 bits, how, and
// the 8-bit problem that is then computed.
#pragma once

#include <array>
#include <cstddef>

#include "core/problem.h"

namespace fa3 {

// How one of q, k, v is quantised.
struct Quantization {
  Problem problem;  // fa3_quantize's
  // In bytes from the workspace's aligned beginning.
  size_t codes = 0;
  size_t scale = 0;
  size_t offset = 0;  // meaningful where the problem writes one
};

// The order is that of the tensors; one that keeps its type has no Quantization.
struct Recipe {
  Problem attention;                 // on the codes
  std::array<TensorId, 3> inputs{};  // of the quantisations: kQ, kK, perhaps kV
  std::array<Quantization, 3> quantizations;
  int count = 0;
  size_t bytes = 0;  // of all codes, scales and offsets
};

// Rows that share a scale, as ScaleBlock has them; INT8 q has one for each row.
struct RecipeRows {
  int64_t q, k, v;
};

// Of a problem whose precision is not the default.
Recipe make_recipe(const Problem& problem, const RecipeRows& rows);

// The buffers of a quantisation of the recipe, and of its attention.
Buffers buffers_of(const Recipe& recipe, int i, const Buffers& call, std::byte* workspace);
Buffers attention_buffers(const Recipe& recipe, const Buffers& call, std::byte* workspace);

// "fp8", "eight_bit", "eight_bit_accurate"; "default".
const char* precision_name(fa3_precision precision);

}  // namespace fa3
