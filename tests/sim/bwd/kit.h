// SPDX-License-Identifier: BSD-3-Clause
// kit.h — the backward kernels in any configuration, in the simulator.
#pragma once

#include <utility>
#include <vector>

#include "device/sm90/bwd/bwd.cuh"
#include "device/sm90/bwd/delta.cuh"
#include "device/sm90/bwd/dq.cuh"
#include "device/sm90/bwd/mask_gradient.cuh"
#include "device/sm90/bwd/sinks.cuh"
#include "device/sm90/mask/mask_image.cuh"
#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/bwd/plan.h"
#include "sim/kernel_run.h"

namespace fa3::sim {

using namespace sm90;

inline DeviceInfo gpu(int multiprocessors) {
  DeviceInfo device = test_device();
  device.multiprocessors = multiprocessors;
  return device;
}

// Compiles a configuration into the test.
template <BwdConfig kCfg>
void add_bwd() {
  static_assert(why_illegal(kCfg) == nullptr);
  const auto add = [](BwdPass pass, Kernel kernel) {
    BwdPlan plan;
    plan.pass = pass, plan.config = kCfg;
    const Registration made(program_of(plan).expression.c_str(), std::move(kernel));
  };
  if constexpr (kCfg.deterministic) add(BwdPass::kBound, kernel_of(&bwd_bound<kCfg>));
  add(BwdPass::kDelta, kernel_of(&bwd_delta<kCfg>));
  add(BwdPass::kMain, kernel_of(&bwd<kCfg>));
  add(BwdPass::kDq, kernel_of(&bwd_dq<kCfg>));
  add(BwdPass::kSinks, kernel_of(&bwd_sinks<kCfg.ragged>));
}

// Only what makes dattn_mask of a mask of F32.
template <BwdConfig kCfg>
void add_mask_gradient() {
  static_assert(why_illegal(kCfg) == nullptr && kCfg.attn_mask == MaskTensor::kF32);
  BwdPlan plan;
  plan.config = kCfg, plan.gradient = gradient_of(kCfg);
  const auto add = [&plan](BwdPass pass, Kernel kernel) {
    plan.pass = pass;
    const Registration made(program_of(plan).expression.c_str(), std::move(kernel));
  };
  add(BwdPass::kDelta, kernel_of(&bwd_delta<kCfg>));
  add(BwdPass::kMaskGradient, kernel_of(&bwd_mask_gradient<gradient_of(kCfg)>));
  constexpr MaskImageConfig kImage{};
  const Registration image(mask_image_expression(kImage).c_str(), kernel_of(&mask_image<kImage>));
}

class MaskGradientRun : public KernelRun {
 public:
  // One CTA makes all tiles of dattn_mask.
  MaskGradientRun(TestRuntime& runtime, const verify::Config& made, const BwdConfig& config)
      : KernelRun(runtime, made, FA3_OP_BACKWARD) {
    std::vector<fa3::Kernel> kernels = {make_mask_image_plan(problem())};
    for (const BwdPlan& plan : value(bwd_plans_of(config, gradient_of(config), problem(), gpu(1))))
      if (plan.pass == BwdPass::kDelta || plan.pass == BwdPass::kMaskGradient)
        kernels.push_back(plan);
    set_kernels(kernels);
  }
};

class BwdRun : public KernelRun {
 public:
  BwdRun(TestRuntime& runtime, const verify::Config& made, const BwdConfig& config)
      : KernelRun(runtime, made, FA3_OP_BACKWARD) {
    const std::vector<BwdPlan> plans =
        value(bwd_plans_of(config, gradient_of(config), problem(), gpu(3)));
    set_kernels({plans.begin(), plans.end()});
  }
};

}  // namespace fa3::sim
