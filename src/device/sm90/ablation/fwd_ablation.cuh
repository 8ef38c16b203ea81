// SPDX-License-Identifier: BSD-3-Clause
// fwd_ablation.cuh — the forward kernel without one of its techniques, as the paper's ablation
// measures it (docs/tuning/ablation.md). No row of the table uses it.
#pragma once

#include "device/sm90/ablation/serial.h"
#include "device/sm90/ablation/three_stage.h"
#include "device/sm90/ablation/unspecialised.h"
#include "device/sm90/fwd/fwd.cuh"

namespace fa3::sm90 {

template <FwdConfig kCfg>
FA3_KERNEL(kCfg.threads(), 1)
void fwd_ablation(FA3_GRID_CONSTANT const FwdArgs args) {
  static_assert(kCfg.overlap.ablation(), "fwd_ablation: this configuration is one of fwd.cuh");
  if constexpr (!kCfg.overlap.specialised) {
    static_assert(kCfg.overlap.step == FwdStep::kTwoStage, "unspecialised: two stages only");
    run_unspecialised<kCfg>(args);
  } else if constexpr (kCfg.overlap.step == FwdStep::kSerial) {
    run_fwd<kCfg, Serial>(args);
  } else {
    run_fwd<kCfg, ThreeStage>(args);
  }
}

}  // namespace fa3::sm90
