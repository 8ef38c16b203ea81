// SPDX-License-Identifier: BSD-3-Clause
// tensor_core.cpp — aligned, cut, exact: in doubles, which hold every sum as it is, by Google
// Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/tensor_core.cpp"
#include "sim/tensor_core.h"

#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace fa3::sim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr u32 kColumns = 64, kTerms = 32;
constexpr i32 kNone = -100000;  // the exponent of zero
// Below those of all products, which a double's hold: what is cut at it is zero.
constexpr i32 kLeastExponent = -400;

using F64 = hn::CappedTag<double, 8>;
using F32 = hn::Rebind<float, F64>;
using I32 = hn::Rebind<i32, F64>;
using I64 = hn::Rebind<int64_t, F64>;

// Of finite numbers, subnormals included: the exponent of their leading bit.
HWY_INLINE hn::Vec<I32> exponent(hn::Vec<F32> x) {
  const I32 i;
  const auto bits = hn::And(hn::BitCast(i, x), hn::Set(i, 0x7fffffff));
  const auto normal = hn::Sub(hn::ShiftRight<23>(bits), hn::Set(i, 127));
  // A subnormal number is its bits, times 2^-149.
  const auto whole = hn::BitCast(i, hn::ConvertTo(F32(), bits));
  const auto subnormal = hn::Sub(hn::ShiftRight<23>(whole), hn::Set(i, 127 + 149));
  const auto nonzero = hn::IfThenElse(hn::Lt(bits, hn::Set(i, 1 << 23)), subnormal, normal);
  return hn::IfThenElse(hn::Eq(bits, hn::Zero(i)), hn::Set(i, kNone), nonzero);
}

// 2^e.
HWY_INLINE hn::Vec<F64> power(hn::Vec<I32> e) {
  const I64 wide;
  const auto biased = hn::Add(hn::PromoteTo(wide, e), hn::Set(wide, 1023));
  return hn::BitCast(F64(), hn::ShiftLeft<52>(biased));
}

// d[0 … lanes) += Σ a[k] · b[k][0 … lanes); b and its exponents have rows of kColumns.
HWY_INLINE hn::Vec<F32> sum(hn::Vec<F32> d, const double* a, const i32* a_exponent, const double* b,
                            const i32* b_exponent, u32 k, int bits) {
  const F64 f64;
  const I32 i32s;
  auto largest = hn::Max(exponent(d), hn::Set(i32s, kLeastExponent));
  for (u32 i = 0; i < k; i++)
    largest = hn::Max(
        largest, hn::Add(hn::Set(i32s, a_exponent[i]), hn::LoadU(i32s, b_exponent + i * kColumns)));
  const auto scale = power(hn::Sub(hn::Set(i32s, bits), largest));
  // From +0 on: no sum is −0.
  auto sum = hn::Add(hn::Zero(f64), hn::Trunc(hn::Mul(hn::PromoteTo(f64, d), scale)));
  for (u32 i = 0; i < k; i++) {
    const auto product = hn::Mul(hn::Set(f64, a[i]), hn::LoadU(f64, b + i * kColumns));
    sum = hn::Add(sum, hn::Trunc(hn::Mul(product, scale)));
  }
  // Cut after `bits` bits, or FP32's 23; below FP32's normal numbers the last place is fixed.
  const uint64_t kept = ~uint64_t{0} << (52 - std::min(bits, 23));
  const hn::Rebind<uint64_t, F64> words;
  const auto value = hn::Mul(sum, power(hn::Sub(largest, hn::Set(i32s, bits))));
  const auto cut = hn::BitCast(f64, hn::And(hn::BitCast(words, value), hn::Set(words, kept)));
  const auto units = hn::Trunc(hn::Mul(cut, hn::Set(f64, 0x1p149)));
  return hn::DemoteTo(F32(), hn::Mul(units, hn::Set(f64, 0x1p-149)));
}

void add_step(float* const* d, const float* a, const float* b, u32 rows, u32 n, u32 k, int bits) {
  const F64 f64;
  const F32 f32;
  const I32 i32s;
  const u32 lanes = static_cast<u32>(hn::Lanes(f64));
  thread_local double right[kTerms * kColumns];
  thread_local i32 right_exponent[kTerms * kColumns];
  bool special_column[kColumns] = {};  // Inf and NaN need no alignment
  for (u32 i = 0; i < k; i++) {
    float row[kColumns] = {};
    std::copy_n(b + i * n, n, row);
    for (u32 j = 0; j < n; j++) special_column[j] = special_column[j] || !std::isfinite(row[j]);
    for (u32 j = 0; j < n; j += lanes) {
      const auto x = hn::LoadU(f32, row + j);
      hn::StoreU(hn::PromoteTo(f64, x), f64, right + i * kColumns + j);
      hn::StoreU(exponent(x), i32s, right_exponent + i * kColumns + j);
    }
  }
  for (u32 r = 0; r < rows; r++) {
    float row[kColumns] = {}, factors[kTerms] = {}, sums[kColumns];
    std::copy_n(d[r], n, row);
    std::copy_n(a + r * kTerms, k, factors);
    double left[kTerms];
    i32 left_exponent[kTerms];
    bool special_row = false;
    for (u32 i = 0; i < k; i++) special_row = special_row || !std::isfinite(factors[i]);
    for (u32 i = 0; i < kTerms; i += lanes) {
      const auto x = hn::LoadU(f32, factors + i);
      hn::StoreU(hn::PromoteTo(f64, x), f64, left + i);
      hn::StoreU(exponent(x), i32s, left_exponent + i);
    }
    for (u32 j = 0; j < n; j += lanes)
      hn::StoreU(
          sum(hn::LoadU(f32, row + j), left, left_exponent, right + j, right_exponent + j, k, bits),
          f32, sums + j);
    for (u32 j = 0; j < n; j++) {
      if (special_row || special_column[j] || !std::isfinite(row[j])) {
        double total = row[j];
        for (u32 i = 0; i < k; i++) total += left[i] * right[i * kColumns + j];
        sums[j] = static_cast<float>(total);
      }
    }
    std::copy_n(sums, n, d[r]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fa3::sim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fa3::sim {

HWY_EXPORT(add_step);

void add_step(float* const* d, const float* a, const float* b, u32 rows, u32 n, u32 k, int bits) {
  HWY_DYNAMIC_DISPATCH(add_step)(d, a, b, rows, n, k, bits);
}

}  // namespace fa3::sim
#endif
