// SPDX-License-Identifier: BSD-3-Clause
// sum.cpp — the model in double precision: its terms are multiples of one unit, fewer than 2^53.
#include "conformance/model/sum.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace fa3::selftest {
namespace {

// Toward zero, to a multiple of 2^exponent.
double cut(double value, int exponent) {
  return std::ldexp(std::trunc(std::ldexp(value, -exponent)), exponent);
}

}  // namespace

std::optional<SumModel> sum_model(MmaType type) {
  if (is_int8(type)) return std::nullopt;
  if (is_fp8(type)) return SumModel{13};
  return SumModel{25};
}

float modelled_sum(const SumModel& model, float c, const std::vector<Factors>& step) {
  int largest = DBL_MIN_EXP - 1;
  if (c != 0) largest = std::ilogb(c);
  for (const Factors& f : step) {
    if (f.a == 0 || f.b == 0) continue;
    largest = std::max(largest, std::ilogb(f.a) + std::ilogb(f.b));
  }
  const int unit = largest - model.fraction_bits;
  double sum = cut(c, unit);
  for (const Factors& f : step) sum += cut(f.a * f.b, unit);
  if (sum == 0) return 0;
  const int exponent = std::ilogb(sum);
  const int fp32_unit = std::max(exponent, FLT_MIN_EXP - 1) - (FLT_MANT_DIG - 1);
  return static_cast<float>(cut(sum, std::max(exponent - model.fraction_bits, fp32_unit)));
}

}  // namespace fa3::selftest
