// SPDX-License-Identifier: BSD-3-Clause
// explain.cpp — problems and plans as JSON.
#include "plan/explain.h"

#include <cstring>

#include "core/dtype.h"
#include "core/json.h"
#include "core/scalars.h"
#include "plan/cpu/cpu_explain.h"
#include "plan/figures.h"
#include "plan/work.h"

namespace fa3 {
namespace {

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

Json option_json(const Problem& p, const ScalarRow& row) {
  const Options& options = p;
  const auto value = [&]<class T>(T number) {
    std::memcpy(&number, reinterpret_cast<const char*>(&options) + row.in_options(), sizeof number);
    return Json(number);
  };
  return row.kind == FA3_FIELD_F64   ? value(double{})
         : row.kind == FA3_FIELD_I64 ? value(int64_t{})
         : row.kind == FA3_FIELD_U64 ? value(uint64_t{})
                                     : value(int32_t{});
}

void describe_options(const Problem& p, Json& json) {
  for (const ScalarRow& row : kScalars)
    if (row.is_option() && row.at[p.op - 1] != kNoField) json[row.name] = option_json(p, row);
}

void describe_layouts(const Problem& p, Json& json) {
  if (p.image.keys > 0) {
    json["v_image_tile_kv"] = p.image.keys;
    json["v_image_columns"] = p.image.columns;
  }
  for (const TensorRow& row : kTensors) {
    if (!has_layout(row.id) || role_of(p.op, row.id) == Role::kNone) continue;
    const Layout& layout = p.layout[row.id];
    Json& tensor = json[row.name];  // null = absent
    if (!layout.present()) continue;
    tensor["dtype"] = dtype_name(layout.dtype);
    tensor["stride_batch"] = layout.batch;
    tensor["stride_row"] = layout.row;
    tensor["stride_head"] = layout.head;
    if (has_parts(row.form)) tensor["stride_part"] = layout.part;
    if (row.form == Form::kMask) tensor["stride_column"] = layout.column;
    if (row.id != kDattnMask) continue;
    tensor["batch"] = p.mask_grad.batch;
    tensor["heads"] = p.mask_grad.heads;
    tensor["rows"] = p.mask_grad.rows;
    tensor["columns"] = p.mask_grad.columns;
  }
}

Json quantization_json(const Problem& p) {
  Json json;
  json["op"] = op_name(p.op);
  json["batch"] = p.batch;
  json["varlen"] = p.q.varlen;
  json[p.q.varlen ? "total" : "seqlen"] = p.q.rows;
  json["max_seqlen"] = p.q.max_seqlen;
  json["seqused"] = p.q.seqused;
  json["heads"] = p.heads_q;
  json["head_dim"] = p.head_dim_qk;
  json["block_rows"] = p.block_of(kCodes).rows;
  json["block_cols"] = p.block_of(kCodes).cols;
  json["block_by_total_row"] = p.block_of(kCodes).by_total_row;
  json["one_scale"] = p.block_of(kCodes).of_tensor;
  json["hadamard"] = p.rotation.hadamard;
  json["seed"] = p.rotation.seed;
  json["rotary_dim"] = p.rotation.rotary_dim;
  json["rotary_layout"] = p.rotation.rotary_pairs ? "pairs" : "halves";
  json["positions"] = p.rotation.positions;
  json["rotary_position"] = p.rotation.positioned;
  describe_layouts(p, json);
  return json;
}

Json merge_json(const Problem& p) {
  Json json;
  json["op"] = op_name(p.op);
  json["parts"] = p.parts;
  json["batch"] = p.batch;
  json["seqlen"] = p.q.rows;
  json["heads"] = p.heads_q;
  json["head_dim"] = p.head_dim_v;
  describe_layouts(p, json);
  return json;
}

// What becomes 8 bits, and how.
Json recipe_json(const Recipe& recipe) {
  Json json;
  json["fp8_alone"] = recipe.attention.problem.layout[kQ].dtype == FA3_F8_E4M3;
  for (int i = 0; i < recipe.count; ++i) {
    const Problem& p = recipe.quantizations[i].problem;
    Json& tensor = json[tensor_name(recipe.inputs[i])];
    tensor["dtype"] = dtype_name(p.layout[kCodes].dtype);
    tensor["rows_per_scale"] = p.block_of(kCodes).rows;
    tensor["hadamard"] = p.rotation.hadamard;
    tensor["less_mean"] = p.layout[kOffset].present();
  }
  json["bytes"] = recipe.bytes;
  return json;
}

// What is written before attention: to the workspace, and to k and v.
Json append_json(const Append& append, const Problem& p) {
  Json json;
  json["rows"] = p.fresh.rows;
  json["rotary_dim"] = p.rotation.rotary_dim;
  json["rotated_queries"] = append.rotates();
  json["bytes"] = append.bytes;
  return json;
}

// Every field of the problem, flat, so that two of them can be compared field by field.
Json problem_json(const Problem& p) {
  if (p.op == FA3_OP_QUANTIZE) return quantization_json(p);
  if (p.op == FA3_OP_COMBINE) return merge_json(p);
  Json json;
  json["op"] = op_name(p.op);
  json["dtype"] = dtype_name(p.layout[kQ].dtype);
  json["batch"] = p.batch;
  json["varlen_q"] = p.q.varlen;
  json["varlen_kv"] = p.kv.varlen;
  json[p.q.varlen ? "total_q" : "seqlen_q"] = p.q.rows;
  json[p.kv.varlen ? "total_kv" : "seqlen_kv"] = p.kv.rows;
  json["max_seqlen_q"] = p.q.max_seqlen;
  json["max_seqlen_kv"] = p.kv.max_seqlen;
  json["seqused_q"] = p.q.seqused;
  json["seqused_kv"] = p.kv.seqused;
  if (p.in_cache(kK)) json[p.cache.paged() ? "pages" : "kv_slots"] = p.cache.entries;
  if (p.cache.paged()) json["page_size"] = p.cache.page_size;
  if (p.cache.begins) json["kv_begin"] = true;
  if (p.appends()) {
    json[p.fresh.varlen ? "total_new" : "seqlen_new"] = p.fresh.rows;
    json["rotary_dim"] = p.rotation.rotary_dim;
    json["rotary_layout"] = p.rotation.rotary_pairs ? "pairs" : "halves";
    json["positions"] = p.rotation.positions;
    json["rotary_position"] = p.rotation.positioned;
  }
  json["heads_q"] = p.heads_q;
  json["heads_kv"] = p.heads_kv;
  json["head_dim_qk"] = p.head_dim_qk;
  json["head_dim_v"] = p.head_dim_v;
  json["mask"] = mask_name(p.mask);
  json["mask_alignment"] = p.top_left ? "top_left" : "bottom_right";
  describe_options(p, json);
  if (p.op == FA3_OP_BACKWARD) json["deterministic"] = p.deterministic;
  json["precision"] = precision_name(p.precision);
  json["precision_seed"] = p.rotation.seed;
  if (p.is_8_bit()) {
    for (const TensorId id : {kQ, kK, kV}) {
      const std::string block = std::string(tensor_name(id)) + "_block_";
      json[block + "rows"] = p.scale_block[id].rows;
      json[block + "cols"] = p.scale_block[id].cols;
      json[block + "by_total_row"] = p.scale_block[id].by_total_row;
    }
    json["q_scale_per_kv_head"] = p.scale_block[kQ].shared_by_group;
  }
  describe_layouts(p, json);
  return json;
}

// "absent" and "present" are tensors, and names that only varlen or dense problems have.
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

void describe_work(const Work& work, Json& json) {
  json["visible_pairs"] = count(work.pairs);
  json["flops"] = count(work.flops);
  json["flops_exact"] = work.exact;
  if (work.exact) return;
  json["flops_note"] =
      "upper bound from max_seqlen: lengths, sequence ids and attn_mask are data, which a plan "
      "does not read";
}

}  // namespace

std::string explain(const Plan& plan, const std::vector<KernelStep>& on_gpu) {
  const Work work = work_of(plan.problem);
  Json json;
  json["op"] = op_name(plan.problem.op);
  json["backend"] = backend_name(plan.backend);
  json["why"] = plan.why;
  json["threads"] = plan.threads;
  json["workspace_bytes"] = plan.workspace_bytes;
  if (plan.recipe) json["quantizations"] = recipe_json(*plan.recipe);
  if (plan.append) json["append"] = append_json(*plan.append, plan.problem);
  if (plan.decoded) json["decoded_bytes"] = plan.decoded_bytes;
  if (is_attention(plan.problem.op)) describe_work(work, json);
  if (plan.cpu) describe(*plan.cpu, plan.problem, json);
  for (const KernelStep& step : plan.steps) {
    std::visit([&](const auto& kernel) { describe(kernel, step.problem(), json); }, step.kernel);
  }
  for (const KernelStep& step : on_gpu) {
    std::visit([&](const auto& kernel) { describe_estimate(kernel, step.problem(), work, json); },
               step.kernel);
  }
  json["problem"] = problem_json(plan.problem);
  return json.dump();
}

std::optional<Difference> first_difference(const Problem& a, const Problem& b) {
  if (a == b) return std::nullopt;
  const Json x = problem_json(a), y = problem_json(b);
  if (auto found = difference(x, y, "")) return found;
  return Difference{"the problem", "own", "other one"};  // JSON that lacks a member of Problem
}

}  // namespace fa3
