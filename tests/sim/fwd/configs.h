// SPDX-License-Identifier: BSD-3-Clause
// configs.h — configurations of the forward kernel that the tests of this folder run: the building
// blocks of the table's rows, and what they are measured against.
#pragma once

#include <string>
#include <vector>

#include "plan/sm90/fwd_configs.h"
#include "tools/verify/problem.h"

namespace fa3::sim {

using namespace sm90;

// Small tiles: many of them in a short run.
constexpr FwdConfig small(MaskKind mask, bool ragged) {
  return {.mask = mask,
          .head_dim_qk = 64,
          .head_dim_v = 64,
          .tile_kv = 32,
          .softmax = {.lazy_rescale = true, .test_first = true},
          .ragged = ragged};
}
constexpr FwdConfig with_step(FwdConfig c, FwdStep step) {
  c.step = step;
  return c;
}
constexpr FwdConfig without_specialisation(FwdConfig c) {
  c.specialised = false;
  c.schedule = FwdSchedule::kOneTile;
  return c;
}
// For ALiBi and sequence ids.
constexpr FwdConfig with_functors_of(FwdConfig c) {
  c.score = ScoreKind::kScaled;
  return c;
}

struct Variant {
  const char* name;
  FwdConfig config;
  bool functors = false;
};

// Variants that no row of the table has, and functors; each for every mask, dense and ragged.
template <MaskKind kMask, bool kRagged>
inline constexpr Variant kVariants[] = {
    {"serial", with_step(small(kMask, kRagged), FwdStep::kSerial)},
    {"three stages", with_step(small(kMask, kRagged), FwdStep::kThreeStage)},
    {"unspecialised", without_specialisation(small(kMask, kRagged))},
    {"functors", with_functors_of(small(kMask, kRagged)), true},
};

}  // namespace fa3::sim
