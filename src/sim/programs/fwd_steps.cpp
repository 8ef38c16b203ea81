// SPDX-License-Identifier: BSD-3-Clause
// fwd_steps.cpp — the forward kernel at head dim 128, two consumers, with the steps that no row of
// the table has, for the host: to be compared with.
#include "device/sm90/ablation/fwd_ablation.cuh"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

constexpr FwdConfig with_step(FwdStep step) {
  for (const FwdRow& row : kFwdRows) {
    FwdConfig config = row.config;
    if (config.tile.head_dim_qk != 128 || config.tile.head_dim_v != 128 ||
        config.tile.consumer_wgs != 2)
      continue;
    config.overlap.step = step;
    return config;
  }
  return {};
}

template <FwdStep kStep>
void add() {
  constexpr FwdConfig kCfg = with_step(kStep);
  const Registration registration(fwd_expression(kCfg).c_str(), kernel_of(&fwd_ablation<kCfg>));
}

const Registrations added(&add<FwdStep::kSerial>);

}  // namespace
}  // namespace fa3::sim
