// SPDX-License-Identifier: BSD-3-Clause
// kit.h — the forward kernel in any configuration, in the simulator: programs that are compiled
// into the test, and the plan of a problem with fields changed.
#pragma once

#include <utility>
#include <vector>

#include "device/sm90/ablation/fwd_ablation.cuh"
#include "device/sm90/fwd/fwd.cuh"
#include "device/sm90/fwd/v_image.cuh"
#include "device/sm90/mask/mask_bits.cuh"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/mask/bits_plan.h"
#include "sim/kernel_run.h"

namespace fa3::sim {

using namespace sm90;

// Compiles a configuration into the test; kBoth: with both functors.
template <FwdConfig kCfg, bool kBoth = false>
void add_fwd() {
  static_assert(why_illegal(kCfg) == nullptr);
  if constexpr (kBoth) {
    const Registration made(fwd_expression(kCfg, {true, true}).c_str(),
                            kernel_of(&fwd<kCfg, AlibiScore, SequenceIdMask>));
  } else if constexpr (kCfg.overlap.ablation()) {
    const Registration made(fwd_expression(kCfg).c_str(), kernel_of(&fwd_ablation<kCfg>));
  } else {
    const Registration made(fwd_expression(kCfg).c_str(), kernel_of(&fwd<kCfg>));
    if constexpr (kCfg.mask.has_tensor()) {
      constexpr MaskBitsConfig kBits{kCfg.mask.tensor, false, kCfg.tile.q(), kCfg.tile.kv};
      const Registration bits(mask_bits_expression(kBits).c_str(), kernel_of(&mask_bits<kBits>));
    }
    if constexpr (kCfg.load.v_image) {
      constexpr VImageConfig kImage{kCfg.turned_v(), kCfg.load.ragged};
      const Registration image(v_image_expression(kImage).c_str(), kernel_of(&v_image<kImage>));
    }
  }
}

class FwdRun : public KernelRun {
 public:
  FwdRun(TestRuntime& runtime, const verify::Config& made, const FwdConfig& config)
      : KernelRun(runtime, made, FA3_OP_FORWARD) {
    const DeviceInfo device = test_device();
    plan_ = with_config(value(make_fwd_plan(problem(), device)), config, problem(),
                        device.multiprocessors);
    std::vector<fa3::Kernel> kernels;
    const FwdConfig& c = plan_.config;
    if (c.mask.has_tensor())
      kernels.push_back(make_mask_bits_plan(problem(), c.tile.q(), c.tile.kv));
    if (c.load.v_image) kernels.push_back(make_v_image_plan(plan_, problem()));
    kernels.push_back(plan_);
    set_kernels(kernels);
  }
  const FwdPlan& plan() const { return plan_; }

 private:
  FwdPlan plan_;
};

}  // namespace fa3::sim
