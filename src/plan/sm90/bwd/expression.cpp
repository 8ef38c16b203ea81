// SPDX-License-Identifier: BSD-3-Clause
// expression.cpp — a configuration as the text that NVRTC compiles, and by which the simulator
// finds it.
#include <fmt/core.h>

#include "plan/sm90/bwd/plan.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/mask/image_plan.h"

namespace fa3::sm90 {

Program program_of(const BwdPlan& plan) {
  if (plan.pass == BwdPass::kSinks)
    return {"device/sm90/bwd/sinks.cuh",
            fmt::format("fa3::sm90::bwd_sinks<{}>", plan.config.ragged), kHopperArch};
  const bool gradient = plan.pass == BwdPass::kMaskGradient;
  const bool rows_only = plan.pass != BwdPass::kMain && !gradient;
  const bool keys_only = plan.pass == BwdPass::kBound;
  BwdConfig c = gradient ? plan.gradient : plan.config;
  if (rows_only && plan.pass != BwdPass::kDelta) c.softcap = false;  // nothing to the others
  if (plan.pass == BwdPass::kDq && !c.deterministic) c.functors = false;
  if (keys_only) c.functors = false;
  if (plan.pass != BwdPass::kMain && plan.pass != BwdPass::kDelta) c.sets_zeros = false;
  if (rows_only) {  // but where scores are made again, nothing either
    // bwd_dq reads what is behind a word that a mask that is added has among a tile's rows.
    const bool reads = plan.pass == BwdPass::kDq && c.deterministic && c.adds_mask();
    if (reads) c.attn_mask = MaskTensor::kF32;
    if (!reads && (plan.pass != BwdPass::kDelta || !c.adds_mask())) c.attn_mask = MaskTensor::kNone;
  }
  static constexpr const char* kFiles[] = {"bound", "delta", "bwd", "dq", "mask_gradient"};
  static constexpr const char* kFunctions[] = {"bwd_bound", "bwd_delta", "bwd", "bwd_dq",
                                               "bwd_mask_gradient"};
  const auto pass = static_cast<size_t>(plan.pass);
  return {fmt::format("device/sm90/bwd/{}.cuh", kFiles[pass]),
          fmt::format(
              "fa3::sm90::{}<fa3::sm90::BwdConfig{{.dtype = fa3::MmaType::{}, .head_dim_qk "
              "= {}, .head_dim_v = {}, .tile_q = {}, .consumer_wgs = {}, "
              ".stages = {}, .softcap = {}, .functors = {}, .attn_mask = fa3::MaskTensor::{}, "
              ".ragged = {}, "
              ".deterministic = {}{}{}}}>",
              kFunctions[pass], name_of(c.dtype).enumerator, c.head_dim_qk, c.head_dim_v, c.tile_q,
              c.consumer_wgs, c.stages, c.softcap, c.functors, name_of(c.attn_mask).enumerator,
              c.ragged, c.deterministic, c.sets_zeros ? ", .sets_zeros = true" : "",
              gradient ? ", .mask_gradient = true" : ""),
          kHopperArch};
}

std::string mask_image_expression(const MaskImageConfig& config) {
  return fmt::format(
      "fa3::sm90::mask_image<fa3::sm90::MaskImageConfig{{.type = fa3::MaskTensor::{}, .bf16 = "
      "{}}}>",
      name_of(config.type).enumerator, config.bf16);
}

}  // namespace fa3::sm90
