// SPDX-License-Identifier: BSD-3-Clause
// v_image_plan.h — the kernel that transposes 8-bit V before the forward, whose configuration says
// so, or at the end of a quantisation: tiles and grid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.h"
#include "device/sm90/fwd/v_image_config.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/work.h"
#include "runtime/program.h"

namespace fa3::sm90 {

struct VImagePlan {
  VImageConfig config;
  uint32_t tiles = 0;  // over all sequences
  uint32_t heads = 0;
};

VImagePlan make_v_image_plan(const FwdPlan& forward, const Problem& problem);

// Of a quantisation that writes an image of its codes.
VImagePlan make_v_image_plan(const Problem& quantization);

// The program's name in packs.
std::string v_image_name(const VImageConfig& config);

// What a step of a plan (plan/plan.h) needs from a kernel. The workspace is counted by the forward.
Program program_of(const VImagePlan& plan);
LaunchShape shape_of(const VImagePlan& plan);
inline size_t workspace_bytes(const VImagePlan&) { return 0; }
inline size_t zeroed_bytes(const VImagePlan&) { return 0; }
std::string name_of(const VImagePlan& plan);
std::string head_dims_text(const VImagePlan& plan);
inline std::optional<VImagePlan> wider(const VImagePlan&) { return std::nullopt; }
inline bool tuned(const VImagePlan&) { return false; }
inline std::string declined(const VImagePlan&) { return ""; }
void describe(const VImagePlan& plan, const Problem& problem, Json& json);
inline void describe_estimate(const VImagePlan&, const Problem&, const Work&, Json&) {}

}  // namespace fa3::sm90
