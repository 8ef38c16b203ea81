// SPDX-License-Identifier: BSD-3-Clause
// isa.cpp — which instruction set the cpu backend uses on this processor.
#include <hwy/targets.h>

#include "backend/cpu/cpu.h"

namespace fa3::cpu {

namespace {

// dpbf16 multiplies two pairs where an FMA multiplies one: on AMD at the same rate, hence twice as fast; on Intel (Cooper
// Lake to Granite Rapids) at half the rate or less, so that widening to FP32 is as fast and more exact. docs/adr/0005.
bool bf16_dot_pays() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

bool has_bf16_dot() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace

bool has_isa(Isa isa) {
  const int64_t targets = hwy::SupportedTargets();
  switch (isa) {
    case Isa::kAvx3Bf16:
      return (targets & HWY_AVX3) != 0 && has_bf16_dot();
    case Isa::kAvx3:
      return (targets & HWY_AVX3) != 0;
    case Isa::kAvx2:
      return (targets & HWY_AVX2) != 0;
    case Isa::kSse4:
      return (targets & HWY_SSE4) != 0;
    case Isa::kNeon:
      return (targets & HWY_NEON) != 0;
    case Isa::kScalar:
      return true;
  }
  return false;
}

Isa best_isa() {
  if (has_isa(Isa::kAvx3Bf16) && bf16_dot_pays()) return Isa::kAvx3Bf16;
  for (const Isa isa : {Isa::kAvx3, Isa::kAvx2, Isa::kSse4, Isa::kNeon})
    if (has_isa(isa)) return isa;
  return Isa::kScalar;
}

}  // namespace fa3::cpu
