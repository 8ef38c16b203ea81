// SPDX-License-Identifier: BSD-3-Clause
// v_image_plan.cpp — grid, program and name of the kernel that transposes 8-bit V.
#include "plan/sm90/fwd/v_image_plan.h"

#include <fmt/core.h>

#include "plan/sm90/slices.h"

namespace fa3::sm90 {

VImagePlan make_v_image_plan(const FwdPlan& forward, const Problem& problem) {
  const FwdConfig& c = forward.config;
  VImagePlan plan;
  plan.config = {c.turned_v(), c.load.ragged};
  plan.tiles = static_cast<uint32_t>(v_image_tiles(problem.kv, problem.batch, c.tile.kv));
  plan.heads = static_cast<uint32_t>(problem.heads_kv);
  return plan;
}

VImagePlan make_v_image_plan(const Problem& p) {
  const TurnedTile tile{static_cast<int>(p.image.keys), static_cast<int>(p.image.columns)};
  VImagePlan plan;
  plan.config = {tile, p.q.varlen || p.q.seqused};
  plan.tiles = static_cast<uint32_t>(v_image_tiles(p.q, p.batch, tile.keys));
  plan.heads = static_cast<uint32_t>(p.heads_q);
  plan.quantizes = true;
  return plan;
}

std::string v_image_name(const VImageConfig& config) {
  return fmt::format("v_image/d{}/kv{}/{}", config.tile.columns, config.tile.keys,
                     config.ragged ? "ragged" : "dense");
}

Program program_of(const VImagePlan& plan) {
  return {"device/sm90/fwd/v_image.cuh", v_image_expression(plan.config), kHopperArch};
}

LaunchShape shape_of(const VImagePlan& plan) {
  LaunchShape shape;
  shape.grid[0] = plan.tiles;
  shape.grid[1] = plan.heads;
  shape.threads = VImageConfig::kThreads;
  shape.smem_bytes = static_cast<u32>(plan.config.smem_bytes());
  shape.pdl = true;
  return shape;
}

size_t VImagePlan::bytes() const {
  return static_cast<size_t>(int64_t{tiles} * heads * config.tile.bytes());
}

std::vector<Slice> writes(const VImagePlan& plan) {
  if (plan.quantizes) return {};
  return {{.name = kVImageSlice, .bytes = plan.bytes(), .align = kCacheLine}};
}

std::string name_of(const VImagePlan& plan) { return v_image_name(plan.config); }

std::string head_dims_text(const VImagePlan& plan) {
  return std::to_string(plan.config.tile.columns);
}

void describe(const VImagePlan& plan, const Problem&, Json& json) {
  Json& own = json["v_image"];
  own["kernel"] = program_of(plan).expression;
  own["tile"] = fmt::format("{}x{}", plan.config.tile.keys, plan.config.tile.columns);
  own["tiles"] = plan.tiles;
  own["heads"] = plan.heads;
  own["bytes"] = plan.bytes();
}

}  // namespace fa3::sm90
