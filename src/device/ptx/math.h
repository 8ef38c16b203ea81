// SPDX-License-Identifier: BSD-3-Clause
// math.h — FP32 functions that one instruction computes, byte permutation and leading zeros.
// Arithmetic on registers: no memory clobbers. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// ex2.approx.ftz.f32 (9.7.3.21): 2^x within 2 ulp.
FA3_DEV float ex2(float x) {
#if FA3_GPU
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return twin::ex2(x);
#endif
}

// lg2.approx.ftz.f32 (9.7.3.20): log2(x).
FA3_DEV float lg2(float x) {
#if FA3_GPU
  float out;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return twin::lg2(x);
#endif
}

// rcp.approx.ftz.f32 (9.7.3.13): 1/x within 1 ulp.
FA3_DEV float rcp(float x) {
#if FA3_GPU
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return twin::rcp(x);
#endif
}

// tanh.approx.f32 (9.7.3.22).
FA3_DEV float tanh_approx(float x) {
#if FA3_GPU
  float out;
  asm("tanh.approx.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return twin::tanh(x);
#endif
}

// fma.rn.f32 (9.7.3.6): a·b + c, rounded once.
FA3_DEV float fma(float a, float b, float c) {
#if FA3_GPU
  float out;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(out) : "f"(a), "f"(b), "f"(c));
  return out;
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// abs.f32 (9.7.3.9).
FA3_DEV float abs(float x) {
#if FA3_GPU
  float out;
  asm("abs.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return __builtin_fabsf(x);
#endif
}

// max.f32 (9.7.3.12): of a number and a NaN the number.
FA3_DEV float max(float a, float b) {
#if FA3_GPU
  float out;
  asm("max.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
#else
  return twin::max(a, b);
#endif
}

// min.f32 (9.7.3.11): of a number and a NaN the number.
FA3_DEV float min(float a, float b) {
#if FA3_GPU
  float out;
  asm("min.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
#else
  return twin::min(a, b);
#endif
}

// max.NaN.f32 (9.7.3.12): NaN when either is.
FA3_DEV float max_nan(float a, float b) {
#if FA3_GPU
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
#else
  return twin::max_nan(a, b);
#endif
}

// prmt.b32 (9.7.9.7): byte i of the result is byte (selector >> 4i) & 7 of {b, a}, a the low word.
FA3_DEV u32 prmt(u32 a, u32 b, u32 selector) {
#if FA3_GPU
  u32 out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
  return out;
#else
  return twin::prmt(a, b, selector);
#endif
}

// clz.b32 (9.7.1.15): how many zeros are above the highest one; 32 for 0.
FA3_DEV i32 clz(u32 x) {
#if FA3_GPU
  i32 out;
  asm("clz.b32 %0, %1;" : "=r"(out) : "r"(x));
  return out;
#else
  return x == 0 ? 32 : __builtin_clz(x);
#endif
}

}  // namespace fa3::ptx
