// SPDX-License-Identifier: BSD-3-Clause
// simd-inl.h — what the SIMD files share, per instruction set: vector types, element conversion,
// exp2, tanh. Include only between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE users; guarded the
// Highway way.
#if defined(FA3_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FA3_BACKEND_CPU_SIMD_INL_H_
#undef FA3_BACKEND_CPU_SIMD_INL_H_
#else
#define FA3_BACKEND_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

#include "backend/cpu/kernels.h"
#include "core/dtype.h"
#include "device/attn/conventions.h"

HWY_BEFORE_NAMESPACE();
namespace fa3::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
inline constexpr int kLanes = HWY_LANES(float);
// Vectors per panel row: with 32 registers 6 × 4 accumulators fit, with 16 registers 6 × 2.
inline constexpr int kVectors = (HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64) ? 4 : 2;
inline constexpr int kPanel = kVectors * kLanes;

inline HWY_ATTR VF load(const float* p) { return hn::LoadU(DF(), p); }
inline HWY_ATTR VF load(const Bf16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(d16, &p->bits))));
}
// Highway's own conversions of F16 mistake Inf and NaN for numbers and truncate where the processor
// has no instruction for them.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
inline HWY_ATTR VF load(const F16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const DU du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, &p->bits));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFF));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  // Read as a float the exponent is too small by 127 − 15. The product is exact, subnormals too.
  const VF value =
      hn::Mul(hn::BitCast(DF(), hn::ShiftLeft<13>(magnitude)), hn::Set(DF(), 0x1p112f));
  // Inf and NaN: the product is 2^16 or more.
  const auto special = hn::RebindMask(du, hn::Ge(value, hn::Set(DF(), 0x1p16f)));
  const auto exponent = hn::IfThenElseZero(special, hn::Set(du, 0x7F800000));
  return hn::BitCast(DF(), hn::Or(hn::Or(hn::BitCast(du, value), exponent), sign));
}
inline HWY_ATTR void store(VF v, F16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const DF d;
  const DU du;
  const auto bits = hn::BitCast(du, v);
  const VF value = hn::Abs(v);
  const auto magnitude = hn::BitCast(du, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  // To nearest even, on the bits; a carry goes into the exponent, as it should.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(du, 0xFFF)), odd));
  const auto normal = hn::Sub(rounded, hn::Set(du, (127 - 15) << 10));
  // Subnormals count units of 2^-24, which is what one half has in its last place.
  const auto half = hn::Set(d, 0.5f);
  const auto subnormal = hn::Sub(hn::BitCast(du, hn::Add(value, half)), hn::BitCast(du, half));
  const auto mask = [&](auto m) HWY_ATTR { return hn::RebindMask(du, m); };
  auto f16 = hn::IfThenElse(mask(hn::Lt(value, hn::Set(d, 0x1p-14f))), subnormal, normal);
  f16 = hn::IfThenElse(mask(hn::Ge(value, hn::Set(d, 65520.0f))), hn::Set(du, 0x7C00), f16);
  const auto nan =
      hn::Or(hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 0x3FF)), hn::Set(du, 0x7E00));
  f16 = hn::IfThenElse(mask(hn::IsNaN(v)), nan, f16);
  hn::StoreU(hn::TruncateTo(d16, hn::Or(f16, sign)), d16, &p->bits);
}
#else
inline HWY_ATTR VF load(const F16* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(&p->bits)));
}
inline HWY_ATTR void store(VF v, F16* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(&p->bits));
}
#endif

// The upper 16 bits of FP32, rounded to nearest even; a NaN stays a (quiet) NaN.
inline HWY_ATTR hn::Vec<DU> round_to_bf16(VF v) {
  const DU du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(du, 0x7FFF)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
}

inline HWY_ATTR void store(VF v, float* p) { hn::StoreU(v, DF(), p); }
inline HWY_ATTR void store(VF v, Bf16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  hn::StoreU(hn::TruncateTo(d16, round_to_bf16(v)), d16, &p->bits);
}

// The first n < kLanes elements; the rest are 0 / untouched. Tails only, so a copy through the
// stack is fast enough.
template <class T>
HWY_ATTR VF load_first(const T* p, int n) {
  T padded[kLanes] = {};
  for (int i = 0; i < n; ++i) padded[i] = p[i];
  return load(padded);
}
template <class T>
HWY_ATTR void store_first(VF v, T* p, int n) {
  T padded[kLanes];
  store(v, padded);
  for (int i = 0; i < n; ++i) p[i] = padded[i];
}

// p(r), r in [0, 1): minimax polynomial of degree 5 for 2^r, relative error 7.5e-8 (Remez
// exchange).
inline HWY_ATTR VF exp2_fraction(VF r) {
  const DF d;
  VF p = hn::Set(d, 0.00187757669f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00898933969f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0558263175f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240153611f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693153083f));
  return hn::MulAdd(p, r, hn::Set(d, 0.99999994f));
}

// The greater and the lesser of x and a limit; NaN stays NaN, which Max and Min do not promise.
inline HWY_ATTR VF at_least(float limit, VF x) {
  const VF l = hn::Set(DF(), limit);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
  return hn::Max(l, x);  // the instruction gives its second operand on NaN
#else
  return hn::IfThenElse(hn::Lt(x, l), l, x);
#endif
}
inline HWY_ATTR VF at_most(float limit, VF x) {
  const VF l = hn::Set(DF(), limit);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
  return hn::Min(l, x);
#else
  return hn::IfThenElse(hn::Gt(x, l), l, x);
#endif
}

// 2^x for x ≤ 128, as 2^floor(x) · p(x − floor(x)), subnormal results included; 0 far below (also
// for −inf); NaN stays NaN.
inline HWY_ATTR VF exp2(VF x) {
#if HWY_TARGET <= HWY_AVX3
  // reduce gives x − floor(x), and 0 for infinities; scalef takes the floor of its second operand
  // itself.
  const __m512 r = _mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  return VF{_mm512_scalef_ps(exp2_fraction(VF{r}).raw, x.raw)};
#else
  const DF d;
  const DI di;
  x = at_most(128.0f, at_least(-152.0f, x));  // 2^−152 rounds to 0
  const VF n = hn::Floor(x);
  // In two factors: no exponent field holds those of subnormals, and the product rounds once.
  const auto exponent = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(exponent);
  const auto power = [&](auto e) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127))));
  };
  const VF p = exp2_fraction(hn::Sub(x, n));
  return hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(exponent, half)));
#endif
}

// tanh(x), relative error < 1e-6. Small |x|: odd Taylor polynomial, where 1 − 2/(e^2x + 1) would
// cancel.
inline HWY_ATTR VF tanh(VF x) {
  const DF d;
  const VF y = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  VF small = hn::Set(d, -929569.0f / 638512875.0f);
  small = hn::MulAdd(small, z, hn::Set(d, 21844.0f / 6081075.0f));
  small = hn::MulAdd(small, z, hn::Set(d, -1382.0f / 155925.0f));
  small = hn::MulAdd(small, z, hn::Set(d, 62.0f / 2835.0f));
  small = hn::MulAdd(small, z, hn::Set(d, -17.0f / 315.0f));
  small = hn::MulAdd(small, z, hn::Set(d, 2.0f / 15.0f));
  small = hn::MulAdd(small, z, hn::Set(d, -1.0f / 3.0f));
  small = hn::MulAdd(hn::Mul(small, z), x, x);
  const VF e = exp2(at_most(60.0f, hn::Mul(y, hn::Set(d, 2.0f * kLog2e))));
  const VF big = hn::Sub(hn::Set(d, 1.0f), hn::Div(hn::Set(d, 2.0f), hn::Add(e, hn::Set(d, 1.0f))));
  const VF value = hn::IfThenElse(hn::Lt(y, hn::Set(d, 0.5f)), small, hn::CopySign(big, x));
  return hn::IfThenElse(hn::IsNaN(x), x, value);
}

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
