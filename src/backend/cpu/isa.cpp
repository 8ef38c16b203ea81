// SPDX-License-Identifier: BSD-3-Clause
// isa.cpp — which instruction set the cpu backend uses on this processor.
#include <hwy/targets.h>

#include "backend/cpu/cpu.h"

namespace fa3::cpu {

Isa best_isa() {
  const int64_t targets = hwy::SupportedTargets();
  if (targets & HWY_AVX3) return Isa::kAvx3;
  if (targets & HWY_AVX2) return Isa::kAvx2;
  if (targets & HWY_SSE4) return Isa::kSse4;
  if (targets & HWY_NEON) return Isa::kNeon;
  return Isa::kScalar;
}

}  // namespace fa3::cpu
