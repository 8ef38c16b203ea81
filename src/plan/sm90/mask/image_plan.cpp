// SPDX-License-Identifier: BSD-3-Clause
// image_plan.cpp — extents, grid and name of the kernel that puts attn_mask in the order of
// the backward's registers.
#include "plan/sm90/mask/image_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/dtype.h"
#include "device/warp/mask_image.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/mask/bits_plan.h"
#include "plan/sm90/slices.h"

namespace fa3::sm90 {

size_t MaskImageShape::shown_at() const {
  return static_cast<size_t>(blocks() * kMaskImageRows * kMaskImageRows * element_bytes);
}
size_t MaskImageShape::bytes() const {
  return shown_at() + sizeof(MaskImageShown) * static_cast<size_t>(blocks());
}

MaskImageShape mask_image_shape(const Problem& p) {
  const Layout& mask = p.layout[kAttnMask];
  MaskImageShape shape;
  shape.same_batch = mask.batch == 0, shape.same_heads = mask.head == 0;
  shape.same_rows = mask.row == 0, shape.same_keys = mask.column == 0;
  shape.element_bytes = dtype_bytes(mask.dtype);
  const auto extent = [](bool same, int64_t n) { return same ? std::min<int64_t>(n, 1) : n; };
  shape.batch = extent(shape.same_batch, p.batch);
  shape.heads = extent(shape.same_heads, p.heads_q);
  // Pairs of blocks: tiles of the kernels that read them have up to 128 queries and keys.
  const auto blocks = [](int64_t n) { return 2 * div_up(n, 2 * kMaskImageRows); };
  shape.q_blocks = extent(shape.same_rows, blocks(p.q.rows));
  shape.kv_blocks = extent(shape.same_keys, blocks(p.kv.max_seqlen));
  return shape;
}

Status check_mask_image_shape(const MaskImageShape& shape) {
  constexpr int64_t kMaxGrid = int64_t{1} << 31;
  if (shape.blocks() < kMaxGrid) return {};
  return unsupported(
      "backward: attn_mask of {} batch entries and {} heads, {} blocks of 64 queries by {} of 64 "
      "keys on sm90: {} blocks, need fewer than 2^31; split the batch",
      shape.batch, shape.heads, shape.q_blocks, shape.kv_blocks, shape.blocks());
}

MaskImagePlan make_mask_image_plan(const Problem& p) {
  MaskImagePlan plan;
  plan.config.type = mask_tensor_of(p);
  plan.config.bf16 = p.layout[kAttnMask].dtype == FA3_BF16;  // else F16, or neither
  plan.shape = mask_image_shape(p);
  return plan;
}

Program program_of(const MaskImagePlan& plan) {
  return {"device/sm90/mask/mask_image.cuh", mask_image_expression(plan.config), kHopperArch};
}

LaunchShape shape_of(const MaskImagePlan& plan) {
  LaunchShape shape;
  shape.grid[0] = static_cast<uint32_t>(std::max<int64_t>(plan.shape.blocks(), 1));
  shape.threads = MaskImageConfig::kThreads;
  shape.pdl = true;
  return shape;
}

std::vector<Slice> writes(const MaskImagePlan& plan) {
  return {{.name = kMaskImageSlice, .bytes = plan.shape.bytes(), .align = kCacheLine}};
}

std::string name_of(const MaskImagePlan& plan) {
  const MaskImageConfig& c = plan.config;
  return fmt::format("mask_image/{}", c.type == MaskTensor::kF32 ? "f32" : c.bf16 ? "bf16" : "f16");
}

void describe(const MaskImagePlan& plan, const Problem&, Json& json) {
  Json& mask = json["attn_mask"];
  mask["kernel"] = program_of(plan).expression;
  mask["grid"] = plan.shape.blocks();
  mask["image_bytes"] = plan.shape.bytes();
}

}  // namespace fa3::sm90
