// SPDX-License-Identifier: BSD-3-Clause
// v_image_plan.h — the kernel that transposes 8-bit V before the forward, whose configuration says
// so, or at the end of a quantisation: tiles and grid.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "device/sm90/fwd/v_image_config.h"
#include "plan/plan_kernel.h"
#include "plan/sm90/fwd/plan.h"
#include "runtime/program.h"

namespace fa3::sm90 {

struct VImagePlan : PlainKernel {
  VImageConfig config;
  uint32_t tiles = 0;  // over all sequences
  uint32_t heads = 0;
  bool quantizes = false;  // the image is an output of the call

  size_t bytes() const;
};

VImagePlan make_v_image_plan(const FwdPlan& forward, const Problem& problem);

// Of a quantisation that writes an image of its codes.
VImagePlan make_v_image_plan(const Problem& quantization);

// The program's name in packs.
std::string v_image_name(const VImageConfig& config);

// See plan/plan_kernel.h.
Program program_of(const VImagePlan& plan);
LaunchShape shape_of(const VImagePlan& plan);
std::vector<Slice> writes(const VImagePlan& plan);
std::string name_of(const VImagePlan& plan);
std::string head_dims_text(const VImagePlan& plan);
void describe(const VImagePlan& plan, const Problem& problem, Json& json);

}  // namespace fa3::sm90
