// SPDX-License-Identifier: BSD-3-Clause
// explain.cpp — the Hopper forward in fa3_explain()'s JSON.

#include <algorithm>

#include "core/tuning.h"
#include "plan/figures.h"
#include "plan/sm90/roofline.h"

namespace fa3::sm90 {
namespace {

double waves_of(const FwdPlan& plan) {
  return static_cast<double>(plan.tiles) / std::max(plan.grid, 1u);
}

// The Hopper kernel: its row of the table and why the others were rejected, configuration, grid.
Json kernel_json(const FwdPlan& plan, const Problem& problem) {
  const FwdConfig& c = plan.config;
  const Tiles tiles = tiles_of(problem, c.tile.q(), c.tile.kv);
  Json rejected = Json::object();
  for (const RejectedRow& row : rejected_rows(plan.need, row_named(plan.row)))
    rejected[row.name] = row.why;
  Json json;
  json["kernel"] = program_of(plan).expression;
  json["row"] = plan.row;
  json["row_from"] = plan.tuned ? "file" : "table";
  if (!plan.declined.empty()) json["tuning_declined"] = plan.declined;
  json["tuning_key"] = key_of(problem);
  json["rows_rejected"] = std::move(rejected);
  json["tile_q"] = c.tile.q();
  json["tile_kv"] = c.tile.kv;
  if (c.accumulate.part_tiles > 0) json["part_keys"] = c.accumulate.part_tiles * c.tile.kv;
  json["stages"] = c.tile.stages;
  json["threads"] = c.threads();
  json["registers_consumer"] = c.consumer_registers(plan.functors.sequence_ids);
  json["registers_producer"] = c.producer_registers(plan.functors.sequence_ids);
  json["smem_bytes"] = c.smem_bytes();
  json["grid"] = plan.grid;
  json["q_tiles"] = plan.tiles;
  json["waves"] = rounded(waves_of(plan));
  json["heads_side_by_side"] = plan.order.head_group;
  json["longest_first"] = plan.order.longest_first;
  json["counter"] = plan.counter;
  json["tiles_visited"] = count(tiles.visited);
  json["tiles_skipped"] = count(tiles.skipped);
  return json;
}

Json kv_tile_json(const FwdConfig& c) {
  const TileCost cost = tile_cost(c, false);
  Json json;
  json["mma_clocks"] = rounded(cost.mma);
  json["exponential_clocks"] = rounded(cost.exponentials);
  json["issue_clocks"] = rounded(cost.issue);
  json["shared_memory_clocks"] = rounded(cost.shared_memory);
  json["limiter"] = cost.limiter();
  json["softmax_fits_beside_mma"] = std::max(cost.exponentials, cost.issue) <= cost.mma;
  json["clocks_at_least"] = rounded(cost.most());
  json["clocks_expected"] = rounded(expected_clocks(c, cost));
  json["l2_bytes"] = c.k_tile().bytes() + c.v_tile().bytes();
  return json;
}

// What the roofline says of the kernel on a GPU.
Json estimate_json(const FwdPlan& fwd, const Problem& problem, const Work& work) {
  Json json;
  json["what"] = "a model of the kernel with the rates of an H200, not a measurement";
  json["kernel_head_dims"].push_back(fwd.config.tile.head_dim_qk);
  json["kernel_head_dims"].push_back(fwd.config.tile.head_dim_v);
  json["kv_tile"] = kv_tile_json(fwd.config);
  if (!work.exact) {
    json["note"] = "of one KV tile only: how many there are lies in the lengths, which are data";
    return json;
  }
  if (fwd.tiles == 0) {
    json["note"] = "of one KV tile only: there are no queries, and nothing runs";
    return json;
  }
  const Estimate e = estimate(fwd, problem);
  const bool memory = e.expected_s == e.memory_s;
  json["clock_ghz"] = kClockGhz;
  json["grid"] = fwd.grid;
  json["waves"] = rounded(waves_of(fwd));
  json["busy"] = rounded(e.busy);
  json["limiter"] = memory ? "memory" : tile_cost(fwd.config, false).limiter();
  json["ms_at_least"] = rounded(e.least_s * 1e3);
  json["ms_expected"] = rounded(e.expected_s * 1e3);
  json["tflops_at_most"] = rounded(e.least_s > 0 ? work.flops / e.least_s / 1e12 : 0);
  json["tflops_expected"] = rounded(e.expected_s > 0 ? work.flops / e.expected_s / 1e12 : 0);
  return json;
}

}  // namespace

void describe(const FwdPlan& plan, const Problem& problem, Json& json) {
  json["sm90"] = kernel_json(plan, problem);
}

void describe_estimate(const FwdPlan& plan, const Problem& problem, const Work& work, Json& json) {
  json["estimate"] = estimate_json(plan, problem, work);
}

}  // namespace fa3::sm90
