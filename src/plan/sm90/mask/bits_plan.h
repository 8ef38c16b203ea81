// SPDX-License-Identifier: BSD-3-Clause
// bits_plan.h — the kernel that reads attn_mask before attention does: what it leaves in the
// workspace, its grid and name.
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

MaskTensor mask_tensor_of(const Problem& problem);  // kNone: without attn_mask

// What stands for attn_mask while attention runs: bits of its keys, then MaskTiles. An extent is 1,
// and its strides are 0, where the mask is the same for all; of keys 32.
struct MaskShape {
  int64_t batch = 0, heads = 0, rows = 0, keys = 0;
  int64_t words = 0;                // of a row
  int64_t q_tiles = 0, groups = 0;  // of rows; of 32 KV tiles
  bool same_batch = false, same_heads = false, same_rows = false, same_keys = false;

  int64_t grid() const { return batch * heads * q_tiles * groups; }
  size_t bits_bytes() const;
  size_t tiles_bytes() const;
};
MaskShape mask_shape(const Problem& problem, int tile_q, int tile_kv);

// UNSUPPORTED where the kernel cannot count its tiles.
Status check_mask_shape(const MaskShape& shape, const char* op);

struct MaskBitsPlan : PlainKernel {
  MaskBitsConfig config;
  MaskShape shape;
};
MaskBitsPlan make_mask_bits_plan(const Problem& problem, int tile_q, int tile_kv);

// See plan/plan_kernel.h.
Program program_of(const MaskBitsPlan& plan);
LaunchShape shape_of(const MaskBitsPlan& plan);
std::vector<Slice> writes(const MaskBitsPlan& plan);
std::string name_of(const MaskBitsPlan& plan);
void describe(const MaskBitsPlan& plan, const Problem& problem, Json& json);

std::string mask_bits_expression(const MaskBitsConfig& config);

}  // namespace fa3::sm90
