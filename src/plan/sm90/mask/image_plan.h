// SPDX-License-Identifier: BSD-3-Clause
// image_plan.h — the kernel that puts the elements of an added attn_mask in the order of the
// backward's registers: what it leaves in the workspace, its grid and name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/sm90/mask/config.h"
#include "plan/work.h"
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

struct MaskImagePlan {
  MaskImageConfig config;
  MaskImageShape shape;
  size_t at = 0;  // of the part of the workspace of the attention kernel that follows
};
MaskImagePlan make_mask_image_plan(const Problem& problem, size_t at);

// What a step of a plan (plan/plan.h) needs from a kernel. The workspace is counted by the kernel
// that follows.
Program program_of(const MaskImagePlan& plan);
LaunchShape shape_of(const MaskImagePlan& plan);
inline size_t workspace_bytes(const MaskImagePlan&) { return 0; }
inline size_t zeroed_bytes(const MaskImagePlan&) { return 0; }
std::string name_of(const MaskImagePlan& plan);  // the program's in packs
inline std::string head_dims_text(const MaskImagePlan&) { return "any"; }
inline std::optional<MaskImagePlan> wider(const MaskImagePlan&) { return std::nullopt; }
inline bool tuned(const MaskImagePlan&) { return false; }
inline std::string declined(const MaskImagePlan&) { return ""; }
void describe(const MaskImagePlan& plan, const Problem& problem, Json& json);
inline void describe_estimate(const MaskImagePlan&, const Problem&, const Work&, Json&) {}

std::string mask_image_expression(const MaskImageConfig& config);

}  // namespace fa3::sm90
