// SPDX-License-Identifier: BSD-3-Clause
// bwd_expression.cpp — a configuration as the text that NVRTC compiles, and by which the simulator
// finds it.
#include <fmt/core.h>

#include "plan/sm90/bwd_plan.h"
#include "plan/sm90/fwd_names.h"

namespace fa3::sm90 {

Program program_of(const BwdPlan& plan) {
  BwdConfig c = plan.config;
  if (plan.pass != BwdPass::kMain) c.softcap = false;  // nothing to the others
  if (plan.pass == BwdPass::kDq) c.functors = false;
  const char* const file = plan.pass == BwdPass::kDelta  ? "delta"
                           : plan.pass == BwdPass::kMain ? "bwd"
                                                         : "dq";
  const char* const function = plan.pass == BwdPass::kDelta  ? "bwd_delta"
                               : plan.pass == BwdPass::kMain ? "bwd"
                                                             : "bwd_dq";
  return {fmt::format("device/sm90/bwd/{}.cuh", file),
          fmt::format("fa3::sm90::{}<fa3::sm90::BwdConfig{{.dtype = fa3::MmaType::{}, .head_dim_qk "
                      "= {}, .head_dim_v = {}, .tile_q = {}, .consumer_wgs = {}, "
                      ".stages = {}, .softcap = {}, .functors = {}, .ragged = {}}}>",
                      function, name_of(c.dtype).enumerator, c.head_dim_qk, c.head_dim_v, c.tile_q,
                      c.consumer_wgs, c.stages, c.softcap, c.functors, c.ragged)};
}

}  // namespace fa3::sm90
