// SPDX-License-Identifier: BSD-3-Clause
// convert.cuh — conformance of conversions and of functions that one instruction computes: one
// function applied to a list of operands.
#pragma once

#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"

namespace fa3::selftest {

// Operands are words: floats, or narrow values in the low bits.
enum class Function : u8 {
  kPackF16,
  kPackBf16,
  kPackE4m3,
  kPackE5m2,  // 2 floats, packs of FP8 4, lowest first
  kF16ToF32,
  kBf16ToF32,
  kE4m3x2ToF16x2,
  kE5m2x2ToF16x2,
  kEx2,
  kLg2,
  kRcp,
  kTanh,
  kFma,
  kMax,
  kMin,
  kMaxNan,
  kPrmt,  // a, b, selector
  kClz,
};

FA3_HD constexpr int operands_of(Function function) {
  switch (function) {
    case Function::kPackE4m3:
    case Function::kPackE5m2:
      return 4;
    case Function::kFma:
    case Function::kPrmt:
      return 3;
    case Function::kPackF16:
    case Function::kPackBf16:
    case Function::kMax:
    case Function::kMin:
    case Function::kMaxNan:
      return 2;
    default:
      return 1;
  }
}

inline constexpr u32 kConvertThreads = 128;
inline constexpr u32 kConvertCtas = 8;

struct ConvertArgs {
  const u32* in;  // [count][operands]
  u32* out;       // [count]
  u32 count;
};

template <Function kFunction>
FA3_DEV u32 apply(const u32 (&x)[4]) {
  const auto f = [&](int i) { return ptx::bits_as<float>(x[i]); };
  const auto word = [](float y) { return ptx::bits_as<u32>(y); };
  if constexpr (kFunction == Function::kPackF16) return ptx::pack_f16(f(0), f(1));
  if constexpr (kFunction == Function::kPackBf16) return ptx::pack_bf16(f(0), f(1));
  if constexpr (kFunction == Function::kPackE4m3) return ptx::pack_e4m3(f(0), f(1), f(2), f(3));
  if constexpr (kFunction == Function::kPackE5m2) return ptx::pack_e5m2(f(0), f(1), f(2), f(3));
  if constexpr (kFunction == Function::kF16ToF32) return word(ptx::f16_to_f32(u16(x[0])));
  if constexpr (kFunction == Function::kBf16ToF32) return word(ptx::bf16_to_f32(u16(x[0])));
  if constexpr (kFunction == Function::kE4m3x2ToF16x2) return ptx::e4m3x2_to_f16x2(u16(x[0]));
  if constexpr (kFunction == Function::kE5m2x2ToF16x2) return ptx::e5m2x2_to_f16x2(u16(x[0]));
  if constexpr (kFunction == Function::kEx2) return word(ptx::ex2(f(0)));
  if constexpr (kFunction == Function::kLg2) return word(ptx::lg2(f(0)));
  if constexpr (kFunction == Function::kRcp) return word(ptx::rcp(f(0)));
  if constexpr (kFunction == Function::kTanh) return word(ptx::tanh_approx(f(0)));
  if constexpr (kFunction == Function::kFma) return word(ptx::fma(f(0), f(1), f(2)));
  if constexpr (kFunction == Function::kMax) return word(ptx::max(f(0), f(1)));
  if constexpr (kFunction == Function::kMin) return word(ptx::min(f(0), f(1)));
  if constexpr (kFunction == Function::kMaxNan) return word(ptx::max_nan(f(0), f(1)));
  if constexpr (kFunction == Function::kPrmt) return ptx::prmt(x[0], x[1], x[2]);
  if constexpr (kFunction == Function::kClz) return static_cast<u32>(ptx::clz(x[0]));
}

template <Function kFunction>
FA3_KERNEL(kConvertThreads)
void convert(FA3_GRID_CONSTANT const ConvertArgs args) {
  constexpr u32 kOperands = operands_of(kFunction);
  const u32 first = ptx::block_index_x() * kConvertThreads + ptx::thread_index();
  for (u32 i = first; i < args.count; i += ptx::grid_dim_x() * kConvertThreads) {
    u32 x[4] = {};
    FA3_UNROLL
    for (u32 j = 0; j < kOperands; ++j) x[j] = ptx::ld_global_nc(args.in + kOperands * i + j);
    ptx::st_global(args.out + i, apply<kFunction>(x));
  }
}

}  // namespace fa3::selftest
