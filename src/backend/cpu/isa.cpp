// SPDX-License-Identifier: BSD-3-Clause
// isa.cpp — which instruction set the cpu backend uses on this processor.
#include <hwy/targets.h>

#include <string>

#include "backend/cpu/cpu.h"

namespace fa3::cpu {

namespace {

// dpbf16 multiplies two pairs where an FMA multiplies one: on AMD at the same rate, hence twice as
// fast; on Intel (Cooper Lake to Granite Rapids) at half the rate or less, so that widening to FP32
// is as fast and more exact. docs/adr/0005.
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

}  // namespace

Result<Isa> choose_isa(std::optional<Isa> asked) {
  if (asked && has_isa(*asked)) return *asked;
  if (!asked && has_isa(Isa::kAvx3Bf16) && bf16_dot_pays()) return Isa::kAvx3Bf16;
  std::string offered;
  for (const Isa isa :
       {Isa::kAvx3Bf16, Isa::kAvx3, Isa::kAvx2, Isa::kSse4, Isa::kNeon, Isa::kScalar}) {
    if (!has_isa(isa)) continue;
    if (!asked && isa != Isa::kAvx3Bf16) return isa;
    offered += offered.empty() ? isa_name(isa) : std::string(", ") + isa_name(isa);
  }
  return invalid(
      "environment: FA3_SIMD={} is not offered by this processor and build; need one of {}; "
      "correct or unset it",
      isa_name(*asked), offered);
}

}  // namespace fa3::cpu
