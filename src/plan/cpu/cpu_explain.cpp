// SPDX-License-Identifier: BSD-3-Clause
// cpu_explain.cpp — the cpu backend's tiles and tasks in fa3_explain()'s JSON.
#include "plan/cpu/cpu_explain.h"

#include "plan/figures.h"
#include "plan/work.h"

namespace fa3 {

void describe(const CpuPlan& plan, const Problem& problem, Json& json) {
  const Tiles tiles = tiles_of(problem, plan.tile_q, plan.tile_kv);
  Json cpu;
  cpu["instruction_set"] = isa_name(plan.isa);
  cpu["tile_q"] = plan.tile_q;
  cpu["tile_kv"] = plan.tile_kv;
  cpu["tiles_visited"] = count(tiles.visited);
  cpu["tiles_skipped"] = count(tiles.skipped);
  cpu["tasks"] = plan.tasks;
  if (problem.op == FA3_OP_FORWARD) {
    cpu["blocks_per_head"] = plan.blocks;
    cpu["blocks_per_task"] = plan.blocks_per_task;
    cpu["splits"] = plan.splits;
  } else {
    cpu["chunks_per_head"] = plan.chunks;
  }
  cpu["shared_bytes"] = plan.shared_bytes;
  cpu["scratch_bytes_per_thread"] = plan.scratch_bytes;
  json["cpu"] = std::move(cpu);
}

}  // namespace fa3
