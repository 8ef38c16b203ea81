// SPDX-License-Identifier: BSD-3-Clause
// explain.cpp — problems and plans as JSON.
#include "plan/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/dtype.h"
#include "plan/work.h"

namespace fa3 {
namespace {

using Json = nlohmann::ordered_json;

// A count that may exceed 64 bits: an integer as long as a double holds it exactly.
Json count(double n) { return n < 0x1p53 ? Json(static_cast<int64_t>(n)) : Json(n); }

const char* mask_name(fa3_mask mask) {
  switch (mask) {
    case FA3_MASK_FULL:
      return "full";
    case FA3_MASK_CAUSAL:
      return "causal";
    case FA3_MASK_WINDOW:
      return "window";
  }
  return "unknown";
}

// Every field of the problem, flat, so that two of them can be compared field by field.
Json problem_json(const Problem& p) {
  Json json{{"op", p.op == FA3_OP_FORWARD ? "forward" : "backward"},
            {"dtype", dtype_name(p.dtype)},
            {"batch", p.batch},
            {"packed_q", p.q.packed},
            {"packed_kv", p.kv.packed},
            {p.q.packed ? "total_q" : "seqlen_q", p.q.rows},
            {p.kv.packed ? "total_kv" : "seqlen_kv", p.kv.rows},
            {"max_seqlen_q", p.q.max_seqlen},
            {"max_seqlen_kv", p.kv.max_seqlen},
            {"seqused_q", p.q.seqused},
            {"seqused_kv", p.kv.seqused},
            {"heads_q", p.heads_q},
            {"heads_kv", p.heads_kv},
            {"head_dim_qk", p.head_dim_qk},
            {"head_dim_v", p.head_dim_v},
            {"mask", mask_name(p.mask)},
            {"left", p.left},
            {"right", p.right},
            {"softmax_scale", p.softmax_scale},
            {"softcap", p.softcap}};
  constexpr const char* kNames[kCuSeqlensQ] = {"q",    "k",    "v",  "o",  "lse",
                                               "dout", "dlse", "dq", "dk", "dv"};
  for (int i = 0; i < kCuSeqlensQ; ++i) {
    const Layout& layout = p.layout[i];
    Json& tensor = json[kNames[i]];  // null = absent
    if (!layout.present()) continue;
    tensor = {{"dtype", dtype_name(layout.dtype)},
              {"stride_batch", layout.batch},
              {"stride_row", layout.row},
              {"stride_head", layout.head}};
  }
  return json;
}

// The cpu backend's tiles and tasks.
Json cpu_json(const CpuPlan& cpu, const Problem& problem) {
  const Tiles tiles = tiles_of(problem, cpu.tile_q, cpu.tile_kv);
  Json json{{"instruction_set", isa_name(cpu.isa)},
            {"tile_q", cpu.tile_q},
            {"tile_kv", cpu.tile_kv},
            {"tiles_visited", count(tiles.visited)},
            {"tiles_skipped", count(tiles.skipped)},
            {"tasks", cpu.tasks}};
  if (problem.op == FA3_OP_FORWARD) {
    json["blocks_per_head"] = cpu.blocks;
    json["blocks_per_task"] = cpu.blocks_per_task;
    json["splits"] = cpu.splits;
  } else {
    json["chunks_per_head"] = cpu.chunks;
  }
  json["shared_bytes"] = cpu.shared_bytes;
  json["scratch_bytes_per_thread"] = cpu.scratch_bytes;
  return json;
}

// The Hopper kernel's configuration, grid and shared memory.
Json sm90_json(const FwdSm90Plan& plan, const Problem& problem) {
  const FwdConfig& c = plan.config;
  const Tiles tiles = tiles_of(problem, c.tile_q(), c.tile_kv);
  return {{"kernel", fwd_expression(c)},
          {"row", plan.row},
          {"tile_q", c.tile_q()},
          {"tile_kv", c.tile_kv},
          {"stages", c.stages},
          {"threads", c.threads()},
          {"registers_consumer", c.consumer_registers()},
          {"registers_producer", c.producer_registers()},
          {"smem_bytes", c.smem_bytes()},
          {"grid", plan.grid},
          {"q_tiles", plan.tiles},
          {"waves", static_cast<double>(plan.tiles) / std::max(plan.grid, 1u)},
          {"heads_side_by_side", plan.order.section},
          {"longest_first", plan.order.longest_first},
          {"tiles_visited", count(tiles.visited)},
          {"tiles_skipped", count(tiles.skipped)}};
}

}  // namespace

const char* backend_name(fa3_backend backend) {
  switch (backend) {
    case FA3_BACKEND_AUTO:
      return "auto";
    case FA3_BACKEND_CPU:
      return "cpu";
    case FA3_BACKEND_REFERENCE:
      return "reference";
    case FA3_BACKEND_CUDA:
      return "cuda";
    case FA3_BACKEND_SIM:
      return "sim";
  }
  return "unknown";
}

std::string explain(const Plan& plan) {
  const Work work = work_of(plan.problem);
  Json json{{"op", plan.problem.op == FA3_OP_FORWARD ? "forward" : "backward"},
            {"backend", backend_name(plan.backend)},
            {"why", plan.why},
            {"threads", plan.threads},
            {"workspace_bytes", plan.workspace_bytes},
            {"visible_pairs", count(work.pairs)},
            {"flops", count(work.flops)},
            {"flops_exact", work.exact}};
  if (!work.exact) {
    json["flops_note"] =
        "upper bound from max_seqlen: lengths are data, which a plan does not read";
  }
  if (plan.backend == FA3_BACKEND_CPU) json["cpu"] = cpu_json(plan.cpu, plan.problem);
  if (plan.backend == FA3_BACKEND_CUDA || plan.backend == FA3_BACKEND_SIM)
    json["sm90"] = sm90_json(plan.fwd, plan.problem);
  json["problem"] = problem_json(plan.problem);
  return json.dump(2);
}

std::optional<Difference> first_difference(const Problem& a, const Problem& b) {
  if (a == b) return std::nullopt;
  const Json x = problem_json(a).flatten(), y = problem_json(b).flatten();
  for (const auto& [key, value] : x.items()) {
    const std::string other = y.contains(key) ? y[key].dump() : "absent";
    if (value.dump() != other) return Difference{key, value.dump(), other};
  }
  return Difference{"tensors", "absent", "present"};
}

}  // namespace fa3
