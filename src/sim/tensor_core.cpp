// SPDX-License-Identifier: BSD-3-Clause
// tensor_core.cpp — aligned, cut, exact: loops over columns that compilers turn into vectors.
#include "sim/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fa3::sim {
namespace {

constexpr u32 kColumns = 64;
constexpr i32 kNone = -100000;  // the exponent of zero

// Of a finite number, subnormals included.
i32 exponent(float x) { return x == 0 ? kNone : std::ilogb(x); }

// 2^e. The exponents of all terms together stay within those of a double.
double power(i32 e) { return std::bit_cast<double>(static_cast<u64>(e + 1023) << 52); }

// sum · 2^(largest − bits) as FP32: cut toward zero after `bits` bits, or FP32's 23.
float result(i64 sum, i32 largest, int bits) {
  if (sum == 0) return 0;
  const u64 magnitude = static_cast<u64>(sum < 0 ? -sum : sum);
  const int excess = std::bit_width(magnitude) - 1 - std::min(bits, 23);
  const u64 kept = excess > 0 ? magnitude >> excess << excess : magnitude;
  const double value = std::ldexp(static_cast<double>(kept), largest - bits);
  // Below FP32's normal numbers the last place is fixed.
  const double whole = std::ldexp(std::trunc(std::ldexp(value, 149)), -149);
  const float out = static_cast<float>(value < 0x1p-126 ? whole : value);
  return sum < 0 ? -out : out;
}

}  // namespace

void add_step(float* const* d, const float* a, const float* b, u32 rows, u32 n, u32 k, int bits) {
  thread_local i32 b_exponent[32 * kColumns];
  bool special_b = false;  // exponents of Inf and NaN are not to be added
  for (u32 i = 0; i < k * n; i++) {
    b_exponent[i] = exponent(b[i]);
    special_b = special_b || !std::isfinite(b[i]);
  }
  for (u32 r = 0; r < rows; r++) {
    i32 largest[kColumns];
    double scale[kColumns];
    i64 sum[kColumns];
    bool special = special_b;
    for (u32 j = 0; j < n; j++) {
      largest[j] = exponent(d[r][j]);
      special = special || !std::isfinite(d[r][j]);
    }
    for (u32 i = 0; i < k; i++) {
      const float left = a[r * 32 + i];
      special = special || !std::isfinite(left);
      if (left == 0 || special) continue;
      const i32 left_exponent = exponent(left);
      for (u32 j = 0; j < n; j++)
        largest[j] = std::max(largest[j], left_exponent + b_exponent[i * n + j]);
    }
    if (special) {  // Inf and NaN need no alignment
      for (u32 j = 0; j < n; j++)
        for (u32 i = 0; i < k; i++) d[r][j] += a[r * 32 + i] * b[i * n + j];
      continue;
    }
    for (u32 j = 0; j < n; j++) {
      scale[j] = power(bits - std::max(largest[j], -400));
      sum[j] = static_cast<i64>(d[r][j] * scale[j]);
    }
    for (u32 i = 0; i < k; i++) {
      const double left = a[r * 32 + i];
      for (u32 j = 0; j < n; j++) sum[j] += static_cast<i32>(left * b[i * n + j] * scale[j]);
    }
    for (u32 j = 0; j < n; j++)
      d[r][j] = largest[j] <= kNone / 2 ? 0.f : result(sum[j], largest[j], bits);
  }
}

}  // namespace fa3::sim
