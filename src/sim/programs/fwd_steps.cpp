// SPDX-License-Identifier: BSD-3-Clause
// fwd_steps.cpp — the forward kernel at head dim 128 with the steps that no row of the table has,
// for the host: to be compared with.
#include "device/kernels/fwd_sm90.cuh"
#include "plan/configs_sm90.h"
#include "plan/fwd_sm90.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig with_step(FwdStep step) {
  for (const FwdRow& row : kFwdRows) {
    if (row.head_dim_qk != 128 || row.head_dim_v != 128 || row.max_seqlen_q != 0) continue;
    FwdConfig config = row.config;
    config.step = step;
    return config;
  }
  return {};
}

template <FwdStep kStep>
bool add() {
  constexpr FwdConfig kCfg = with_step(kStep);
  const Registration registration(fwd_expression(kCfg).c_str(), kernel_of(&fwd_sm90<kCfg>));
  return true;
}

const bool added = add<FwdStep::kSerial>();

}  // namespace
}  // namespace fa3::sim
