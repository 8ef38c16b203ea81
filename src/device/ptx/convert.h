// SPDX-License-Identifier: BSD-3-Clause
// convert.h — FP32 to and from vectors of the narrow types. Arithmetic on registers: no memory
// clobbers. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// cvt.rn.f16x2.f32 (9.7.9.21).
FA3_DEV u32 pack_f16(float low, float high) {
#if FA3_GPU
  u32 out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  return twin::pack_f16(low, high);
#endif
}

// cvt.rn.bf16x2.f32 (9.7.9.21).
FA3_DEV u32 pack_bf16(float low, float high) {
#if FA3_GPU
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  return twin::pack_bf16(low, high);
#endif
}

// cvt.rn.satfinite.e4m3x2.f32 (9.7.9.21), twice; v0 is the lowest byte.
FA3_DEV u32 pack_e4m3(float v0, float v1, float v2, float v3) {
#if FA3_GPU
  u32 out;
  asm("{.reg .b16 lo, hi;\ncvt.rn.satfinite.e4m3x2.f32 lo, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 hi, %4, %3;\nmov.b32 %0, {lo, hi};}"
      : "=r"(out)
      : "f"(v0), "f"(v1), "f"(v2), "f"(v3));
  return out;
#else
  return twin::pack_e4m3(v0, v1, v2, v3);
#endif
}

// cvt.rn.satfinite.e5m2x2.f32 (9.7.9.21), twice; v0 is the lowest byte.
FA3_DEV u32 pack_e5m2(float v0, float v1, float v2, float v3) {
#if FA3_GPU
  u32 out;
  asm("{.reg .b16 lo, hi;\ncvt.rn.satfinite.e5m2x2.f32 lo, %2, %1;\n"
      "cvt.rn.satfinite.e5m2x2.f32 hi, %4, %3;\nmov.b32 %0, {lo, hi};}"
      : "=r"(out)
      : "f"(v0), "f"(v1), "f"(v2), "f"(v3));
  return out;
#else
  return twin::pack_e5m2(v0, v1, v2, v3);
#endif
}

// cvt.rni.s32.f32 (9.7.9.21): the nearest integer, of ties the even one; beyond 32 bits the last
// there is, of NaN 0.
FA3_DEV i32 f32_to_i32(float x) {
#if FA3_GPU
  i32 out;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(out) : "f"(x));
  return out;
#else
  return twin::f32_to_i32(x);
#endif
}

// cvt.f32.f16 (9.7.9.21).
FA3_DEV float f16_to_f32(u16 bits) {
#if FA3_GPU
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
  return out;
#else
  return twin::f16_to_f32(bits);
#endif
}

// cvt.f32.bf16 (9.7.9.21).
FA3_DEV float bf16_to_f32(u16 bits) {
#if FA3_GPU
  float out;
  asm("cvt.f32.bf16 %0, %1;" : "=f"(out) : "h"(bits));
  return out;
#else
  return twin::bf16_to_f32(bits);
#endif
}

// cvt.rn.f16x2.e4m3x2 (9.7.9.21): exact.
FA3_DEV u32 e4m3x2_to_f16x2(u16 bits) {
#if FA3_GPU
  u32 out;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(bits));
  return out;
#else
  return twin::e4m3x2_to_f16x2(bits);
#endif
}

// cvt.rn.f16x2.e5m2x2 (9.7.9.21): exact.
FA3_DEV u32 e5m2x2_to_f16x2(u16 bits) {
#if FA3_GPU
  u32 out;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(out) : "h"(bits));
  return out;
#else
  return twin::e5m2x2_to_f16x2(bits);
#endif
}

}  // namespace fa3::ptx
