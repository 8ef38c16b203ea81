// SPDX-License-Identifier: BSD-3-Clause
// explain.cpp — problems and plans as JSON.
#include "plan/explain.h"

#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "core/json.h"
#include "plan/roofline.h"
#include "plan/work.h"

namespace fa3 {
namespace {

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
  Json json;
  json["op"] = p.op == FA3_OP_FORWARD ? "forward" : "backward";
  json["dtype"] = dtype_name(p.dtype);
  json["batch"] = p.batch;
  json["packed_q"] = p.q.packed;
  json["packed_kv"] = p.kv.packed;
  json[p.q.packed ? "total_q" : "seqlen_q"] = p.q.rows;
  json[p.kv.packed ? "total_kv" : "seqlen_kv"] = p.kv.rows;
  json["max_seqlen_q"] = p.q.max_seqlen;
  json["max_seqlen_kv"] = p.kv.max_seqlen;
  json["seqused_q"] = p.q.seqused;
  json["seqused_kv"] = p.kv.seqused;
  json["heads_q"] = p.heads_q;
  json["heads_kv"] = p.heads_kv;
  json["head_dim_qk"] = p.head_dim_qk;
  json["head_dim_v"] = p.head_dim_v;
  json["mask"] = mask_name(p.mask);
  json["left"] = p.left;
  json["right"] = p.right;
  json["softmax_scale"] = p.softmax_scale;
  json["softcap"] = p.softcap;
  constexpr const char* kNames[kCuSeqlensQ] = {"q",    "k",    "v",  "o",  "lse",
                                               "dout", "dlse", "dq", "dk", "dv"};
  for (int i = 0; i < kCuSeqlensQ; ++i) {
    const Layout& layout = p.layout[i];
    Json& tensor = json[kNames[i]];  // null = absent
    if (!layout.present()) continue;
    tensor["dtype"] = dtype_name(layout.dtype);
    tensor["stride_batch"] = layout.batch;
    tensor["stride_row"] = layout.row;
    tensor["stride_head"] = layout.head;
  }
  return json;
}

// The cpu backend's tiles and tasks.
Json cpu_json(const CpuPlan& cpu, const Problem& problem) {
  const Tiles tiles = tiles_of(problem, cpu.tile_q, cpu.tile_kv);
  Json json;
  json["instruction_set"] = isa_name(cpu.isa);
  json["tile_q"] = cpu.tile_q;
  json["tile_kv"] = cpu.tile_kv;
  json["tiles_visited"] = count(tiles.visited);
  json["tiles_skipped"] = count(tiles.skipped);
  json["tasks"] = cpu.tasks;
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

double waves_of(const FwdSm90Plan& plan) {
  return static_cast<double>(plan.tiles) / std::max(plan.grid, 1u);
}

// Three digits, or a whole number: an estimate has no more.
Json rounded(double x) {
  if (!(x > 0)) return 0;
  const double per_unit = std::pow(10, 2 - std::min(2., std::floor(std::log10(x))));
  const double value = std::round(x * per_unit) / per_unit;
  return value == std::floor(value) ? count(value) : Json(value);
}

// The Hopper kernel: its row of the table and why it is none of the others, configuration, grid.
Json sm90_json(const FwdSm90Plan& plan, const Problem& problem) {
  const FwdConfig& c = plan.config;
  const Tiles tiles = tiles_of(problem, c.tile_q(), c.tile_kv);
  Json rejected = Json::object();
  for (const RejectedRow& row : rejected_rows(plan.need)) rejected[row.name] = row.why;
  Json json;
  json["kernel"] = plan.kernel;
  json["row"] = plan.row;
  json["rows_rejected"] = std::move(rejected);
  json["tile_q"] = c.tile_q();
  json["tile_kv"] = c.tile_kv;
  json["stages"] = c.stages;
  json["threads"] = c.threads();
  json["registers_consumer"] = c.consumer_registers();
  json["registers_producer"] = c.producer_registers();
  json["smem_bytes"] = c.smem_bytes();
  json["grid"] = plan.grid;
  json["q_tiles"] = plan.tiles;
  json["waves"] = rounded(waves_of(plan));
  json["heads_side_by_side"] = plan.order.section;
  json["longest_first"] = plan.order.longest_first;
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
  json["l2_bytes"] = c.k_bytes() + c.v_bytes();
  return json;
}

// What the roofline says of the kernel on a GPU. The simulator's plan stands for that of an H200.
Json estimate_json(const Plan& plan, const Work& work) {
  FwdSm90Plan fwd = plan.fwd;
  if (plan.backend == FA3_BACKEND_SIM) {
    const Result<FwdSm90Plan> gpu = make_fwd_sm90_plan(plan.problem, h200());
    if (gpu.ok()) fwd = gpu.value();
  }
  Json json;
  json["what"] = "a model of the kernel with the rates of an H200, not a measurement";
  json["kernel_head_dims"].push_back(fwd.config.head_dim_qk);
  json["kernel_head_dims"].push_back(fwd.config.head_dim_v);
  json["kv_tile"] = kv_tile_json(fwd.config);
  if (!work.exact) {
    json["note"] = "of one KV tile only: how many there are lies in the lengths, which are data";
    return json;
  }
  if (fwd.tiles == 0) {
    json["note"] = "of one KV tile only: there are no queries, and nothing runs";
    return json;
  }
  const Estimate e = estimate(fwd, plan.problem);
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

// "absent" and "present" are tensors, and names that only packed or dense problems have.
std::string text_of(const Json* value) {
  if (value == nullptr || value->is_null()) return "absent";
  return value->is_object() ? "present" : value->dump_line();
}

// The first member that differs, by its path: "batch", "q.stride_row".
std::optional<Difference> difference(const Json& a, const Json& b, const std::string& path) {
  for (const auto& [name, value] : a.members()) {
    const Json* const other = b.find(name);
    const std::string field = path + name;
    if (other != nullptr && value.is_object() && other->is_object()) {
      if (auto inner = difference(value, *other, field + ".")) return inner;
      continue;
    }
    const std::string x = text_of(&value), y = text_of(other);
    if (x != y) return Difference{field, x, y};
  }
  return std::nullopt;
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
  Json json;
  json["op"] = plan.problem.op == FA3_OP_FORWARD ? "forward" : "backward";
  json["backend"] = backend_name(plan.backend);
  json["why"] = plan.why;
  json["threads"] = plan.threads;
  json["workspace_bytes"] = plan.workspace_bytes;
  json["visible_pairs"] = count(work.pairs);
  json["flops"] = count(work.flops);
  json["flops_exact"] = work.exact;
  if (!work.exact) {
    json["flops_note"] =
        "upper bound from max_seqlen: lengths are data, which a plan does not read";
  }
  if (plan.backend == FA3_BACKEND_CPU) json["cpu"] = cpu_json(plan.cpu, plan.problem);
  if (plan.backend == FA3_BACKEND_CUDA || plan.backend == FA3_BACKEND_SIM) {
    json["sm90"] = sm90_json(plan.fwd, plan.problem);
    json["estimate"] = estimate_json(plan, work);
  }
  json["problem"] = problem_json(plan.problem);
  return json.dump();
}

std::optional<Difference> first_difference(const Problem& a, const Problem& b) {
  if (a == b) return std::nullopt;
  const Json x = problem_json(a), y = problem_json(b);
  if (auto found = difference(x, y, "")) return found;
  return Difference{"tensors", "others", "those"};
}

}  // namespace fa3
