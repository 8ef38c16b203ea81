// SPDX-License-Identifier: BSD-3-Clause
// explain.cpp — the Hopper backward in fa3_explain()'s JSON: members "backward_kernels" and
// "estimate".
#include <algorithm>

#include "core/tuning.h"
#include "plan/figures.h"
#include "plan/sm90/bwd/plan.h"
#include "plan/sm90/bwd/roofline.h"
#include "plan/sm90/roofline.h"

namespace fa3::sm90 {
namespace {

double waves_of(const BwdPlan& plan) {
  return double{1} * plan.grid[0] * plan.grid[1] * plan.grid[2] / h200().multiprocessors;
}

// The main kernel: its row of the table and why the others were rejected, configuration, steps.
void describe_main(const BwdPlan& plan, const Problem& problem, Json& json) {
  const BwdConfig& c = plan.config;
  const Tiles steps = tiles_of(problem, c.tile_q, c.cluster_kv());
  if (!plan.declined.empty()) json["tuning_declined"] = plan.declined;
  json["tuning_key"] = key_of(problem);
  Json& rejected = json["rows_rejected"] = Json::object();
  for (const RejectedBwdRow& row : rejected_bwd_rows(problem, plan.row))
    rejected[row.name] = row.why;
  json["tile_q"] = c.tile_q;
  json["tile_kv"] = c.tile_kv();
  json["cluster"] = c.cluster();
  json["section_heads"] = 1 << plan.section_log2;
  json["dq_sums"] = !plan.sums_dq ? "none" : plan.stores_dq ? "stored" : "added to";
  json["sets_zeros"] = plan.zero_ahead > 0;
  json["stages"] = c.stages;
  json["threads"] = c.threads();
  json["registers_consumer"] = c.consumer_registers();
  json["registers_producer"] = c.producer_registers();
  json["smem_bytes"] = c.smem_bytes();
  json["tiles_visited"] = count(steps.visited);
  json["tiles_skipped"] = count(steps.skipped);
  Json& workspace = json["workspace"];
  workspace["lse_and_delta_bytes"] = plan.stats_bytes();
  workspace["dq_sums_bytes"] = plan.sums_bytes();
  workspace["zero_counts_bytes"] = plan.zero_counts_bytes();
  if (c.adds_mask()) workspace["coarse_rows_bytes"] = plan.coarse_rows_bytes();
  if (c.deterministic) {
    workspace["dq_flags_bytes"] = plan.flags_bytes();
    workspace["bounds_bytes"] = plan.bounds_bytes();
  }
}

// dattn_mask's kernel.
void describe_gradient(const BwdPlan& plan, Json& json) {
  const BwdConfig& c = plan.gradient;
  json["tile_q"] = c.tile_q * c.parts();
  json["tile_kv"] = c.tile_kv();
  json["stages"] = c.stages;
  json["smem_bytes"] = c.smem_bytes();
}

Json step_json(const BwdStepCost& cost) {
  Json json;
  json["mma_clocks"] = rounded(cost.mma);
  json["exponential_clocks"] = rounded(cost.exponentials);
  json["shared_memory_clocks"] = rounded(cost.shared_memory);
  json["additions_clocks"] = rounded(cost.additions);
  json["limiter"] = cost.limiter();
  json["clocks_at_least"] = rounded(cost.most());
  return json;
}

}  // namespace

void describe(const BwdPlan& plan, const Problem& problem, Json& json) {
  Json& own = json["backward_kernels"][word(plan.pass)];
  own["row"] = plan.row;
  own["row_from"] = plan.tuned ? "file" : "table";
  own["kernel"] = program_of(plan).expression;
  // Of the first launch; others, for more sequences than a grid has room for, differ in the last.
  if (plan.first_sequence == 0)
    for (const uint32_t extent : plan.grid) own["grid"].push_back(extent);
  else
    own["more_launches_of_sequences"].push_back(plan.grid[2]);
  if (plan.pass == BwdPass::kMain) describe_main(plan, problem, own);
  if (plan.pass == BwdPass::kMaskGradient) describe_gradient(plan, own);
}

void describe_estimate(const BwdPlan& plan, const Problem& problem, const Work& work, Json& json) {
  if (plan.pass != BwdPass::kMain) return;  // its estimate is of all kernels
  Json& own = json["estimate"];
  own["what"] = "a model of the kernels with the rates of an H200, not a measurement";
  const BwdStepCost step = bwd_step_cost(plan.config, plan.sums_dq);
  own["step"] = step_json(step);
  if (!work.exact) {
    own["note"] = "of one step only: how many there are lies in the lengths, which are data";
    return;
  }
  const BwdEstimate e = bwd_estimate(plan, problem);
  own["clock_ghz"] = kClockGhz;
  own["waves"] = rounded(waves_of(plan));
  own["steps"] = count(e.steps);
  own["busy"] = rounded(e.busy);
  own["limiter"] = e.main_by_memory ? "memory" : step.limiter();
  Json& ms = own["ms_at_least_of"];
  if (e.bound_s > 0) ms["bound"] = rounded(e.bound_s * 1e3);
  ms["delta"] = rounded(e.delta_s * 1e3);
  ms["main"] = rounded(e.main_s * 1e3);
  if (e.dq_s > 0) ms["dq"] = rounded(e.dq_s * 1e3);
  own["ms_at_least"] = rounded(e.least_s() * 1e3);
  own["tflops_at_most"] = rounded(e.least_s() > 0 ? work.flops / e.least_s() / 1e12 : 0);
}

}  // namespace fa3::sm90
