// SPDX-License-Identifier: BSD-3-Clause
// image_plan.h — the kernel that puts the elements of an added attn_mask in the order of the
// backward's registers: what it leaves in the workspace, its grid and name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/sm90/mask/config.h"
#include "plan/plan_kernel.h"
#include "runtime/program.h"

namespace fa3::sm90 {

// The image in blocks (warp/mask_image.h). An extent is 1, and its strides are 0, where the mask
// is the same for all.
struct MaskImageShape {
  int64_t batch = 0, heads = 0, q_blocks = 0, kv_blocks = 0;
  bool same_batch = false, same_heads = false, same_rows = false, same_keys = false;
  int64_t element_bytes = 0;

  int64_t blocks() const { return batch * heads * q_blocks * kv_blocks; }
  size_t shown_at() const;  // behind the blocks
  size_t bytes() const;
};
MaskImageShape mask_image_shape(const Problem& problem);

// UNSUPPORTED where the kernel cannot count its blocks.
Status check_mask_image_shape(const MaskImageShape& shape);

struct MaskImagePlan : PlainKernel {
  MaskImageConfig config;
  MaskImageShape shape;
};
MaskImagePlan make_mask_image_plan(const Problem& problem);

// See plan/plan_kernel.h.
Program program_of(const MaskImagePlan& plan);
LaunchShape shape_of(const MaskImagePlan& plan);
std::vector<Slice> writes(const MaskImagePlan& plan);
std::string name_of(const MaskImagePlan& plan);
void describe(const MaskImagePlan& plan, const Problem& problem, Json& json);

std::string mask_image_expression(const MaskImageConfig& config);

}  // namespace fa3::sm90
