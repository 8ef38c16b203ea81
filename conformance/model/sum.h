// SPDX-License-Identifier: BSD-3-Clause
// sum.h — a model of how the tensor cores add up one step of wgmma, 32 bytes along K. PTX leaves it
// open; its parameters come from what a GPU computes.
#pragma once

#include <optional>
#include <vector>

#include "device/ptx/mma_types.h"

namespace fa3::selftest {

// The products and the accumulator are aligned to the largest exponent among them and cut, toward
// zero, after `fraction_bits` bits below it. Their sum is exact and is cut to as many bits below
// its own exponent, then to FP32. The exponent of a product is the sum of its factors', which is
// one less than that of its value where their significands' product is 2 or more.
struct SumModel {
  int fraction_bits;
};

// The model of a type; none for integers, whose sums are exact.
std::optional<SumModel> sum_model(MmaType type);

struct Factors {
  double a, b;
};
// c + Σ a·b of one step; all values finite.
float modelled_sum(const SumModel& model, float c, const std::vector<Factors>& step);

}  // namespace fa3::selftest
