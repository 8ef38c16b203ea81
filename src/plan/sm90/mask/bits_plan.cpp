// SPDX-License-Identifier: BSD-3-Clause
// bits_plan.cpp — extents, grid and name of the kernel that reads attn_mask before attention.
#include "plan/sm90/mask/bits_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "plan/sm90/fwd/names.h"
#include "plan/sm90/slices.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kMaxGrid = int64_t{1} << 31;
constexpr size_t kTileWords = 4;  // of MaskTiles

size_t whole_16(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

MaskTensor mask_tensor_of(const Problem& p) {
  if (!p.has_mask()) return MaskTensor::kNone;
  const fa3_dtype type = p.layout[kAttnMask].dtype;
  return type == FA3_BOOL  ? MaskTensor::kBool
         : type == FA3_F32 ? MaskTensor::kF32
                           : MaskTensor::k16;
}

size_t MaskShape::bits_bytes() const {
  return whole_16(sizeof(uint32_t) * static_cast<size_t>(batch * heads * rows * words));
}
size_t MaskShape::tiles_bytes() const {
  return sizeof(uint32_t) * kTileWords * static_cast<size_t>(batch * heads * q_tiles * groups);
}

MaskShape mask_shape(const Problem& p, int tile_q, int tile_kv) {
  const Layout& mask = p.layout[kAttnMask];
  MaskShape shape;
  shape.same_batch = mask.batch == 0, shape.same_heads = mask.head == 0;
  shape.same_rows = mask.row == 0, shape.same_keys = mask.column == 0;
  const auto extent = [](bool same, int64_t n, int64_t one) { return same ? std::min(n, one) : n; };
  shape.batch = extent(shape.same_batch, p.batch, 1);
  shape.heads = extent(shape.same_heads, p.heads_q, 1);
  shape.rows = extent(shape.same_rows, p.q.rows, 1);
  // One key says what 32 would, of a tile and of all.
  shape.keys = shape.same_keys && p.kv.max_seqlen > 0 ? 32 : p.kv.max_seqlen;
  shape.words = div_up(shape.keys, 32);
  shape.q_tiles = div_up(shape.rows, tile_q);
  const int64_t tiles = shape.same_keys ? 1 : div_up(shape.keys, tile_kv);
  shape.groups = std::max<int64_t>(div_up(tiles, MaskBitsConfig::kTiles), 1);
  return shape;
}

Status check_mask_shape(const MaskShape& shape, const char* op) {
  if (shape.grid() < kMaxGrid) return {};
  return unsupported(
      "{}: attn_mask of {} batch entries, {} heads, {} queries and {} keys on sm90: {} pieces of "
      "32 tiles, need fewer than 2^31; split the batch",
      op, shape.batch, shape.heads, shape.rows, shape.keys, shape.grid());
}

MaskBitsPlan make_mask_bits_plan(const Problem& p, int tile_q, int tile_kv) {
  MaskBitsPlan plan;
  plan.config.type = mask_tensor_of(p);
  plan.config.bf16 = p.layout[kAttnMask].dtype == FA3_BF16;  // else F16, or neither
  plan.config.tile_q = tile_q, plan.config.tile_kv = tile_kv;
  plan.shape = mask_shape(p, tile_q, tile_kv);
  return plan;
}

Program program_of(const MaskBitsPlan& plan) {
  return {"device/sm90/mask/mask_bits.cuh", mask_bits_expression(plan.config), kHopperArch};
}

LaunchShape shape_of(const MaskBitsPlan& plan) {
  LaunchShape shape;
  shape.grid[0] = static_cast<uint32_t>(std::max<int64_t>(plan.shape.grid(), 1));
  shape.threads = MaskBitsConfig::kThreads;
  shape.smem_bytes = MaskBitsConfig::kSmemBytes;
  shape.pdl = true;
  return shape;
}

std::vector<Slice> writes(const MaskBitsPlan& plan) {
  return {{.name = kMaskBitsSlice, .bytes = plan.shape.bits_bytes(), .align = kCacheLine},
          {.name = kMaskTilesSlice, .bytes = plan.shape.tiles_bytes()}};
}

std::string name_of(const MaskBitsPlan& plan) {
  const MaskBitsConfig& c = plan.config;
  const char* const type = c.type == MaskTensor::k16 ? (c.bf16 ? "bf16" : "f16") : word(c.type);
  return fmt::format("mask_bits/{}/q{}/kv{}", type, c.tile_q, c.tile_kv);
}

void describe(const MaskBitsPlan& plan, const Problem&, Json& json) {
  Json& mask = json["attn_mask"];
  mask["kernel"] = program_of(plan).expression;
  mask["grid"] = plan.shape.grid();
  mask["bits_bytes"] = plan.shape.bits_bytes();
  mask["tiles_bytes"] = plan.shape.tiles_bytes();
}

}  // namespace fa3::sm90
