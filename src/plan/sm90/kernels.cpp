// SPDX-License-Identifier: BSD-3-Clause
// kernels.cpp — the kernels before, of and behind each operation on Hopper.
#include "plan/sm90/kernels.h"

#include <fmt/format.h>

#include <vector>

#include "core/dtype.h"
#include "plan/sm90/ahead.h"
#include "plan/sm90/decode/configs.h"
#include "plan/sm90/features.h"

namespace fa3::sm90 {
namespace {

// Q by rows; K and V by heads, which is what the forward takes.
constexpr RecipeRows kRecipeRows{1, 0, 0};

// Functions that plan the kernels of one problem.
struct Planners {
  Result<FwdPlan> (*forward)(const Problem&, const DeviceInfo&);
  std::optional<DecodeConfig> (*decode)(const FwdPlan&, const Problem&, const DeviceInfo&);
  Result<std::vector<BwdPlan>> (*backward)(const Problem&, const DeviceInfo&);
  Result<std::vector<QuantizePlan>> (*quantize)(const Problem&, const DeviceInfo&);
  bool (*appends)(const DecodeConfig&, const Problem&);
};

Status add_quantization(const Planners& planners, const Part& part, const DeviceInfo& gpu,
                        StepList& steps) {
  const Problem& p = part.problem;
  FA3_TRY(const std::vector<QuantizePlan> plans, planners.quantize(p, gpu));
  steps.begin(part);
  for (const QuantizePlan& plan : plans) steps.add(plan);
  if (p.image.keys > 0 && image_tiles(p.q, p.batch, 1) > 0) steps.add(make_v_image_plan(p));
  return {};
}

// More packed rows of E4M3 Q, K and V are computed in 8 bits.
constexpr int64_t kMostWidened = 64;

Status check_scales_of_codes(const Problem& p) {
  if (!can_widen(p))
    return unsupported(
        "forward: k of f8_e4m3 {} on sm90 (backends cuda and sim) with scales of blocks of rows or "
        "columns or of pages, offsets or v_image, need scales of (1) or (batch, heads_kv); use "
        "backend cpu",
        p.is_8_bit() ? "in a cache"
                     : fmt::format("beside q of {}", dtype_name(p.layout[kQ].dtype)));
  return {};
}

// Keys of 8 bits that only the decode kernel takes, whatever the queries are.
Status add_widening(const Planners& planners, const Part& part, const DeviceInfo& gpu,
                    StepList& steps) {
  const Problem& p = part.problem;
  FA3_RETURN_IF_ERROR(check_features(p));
  FA3_RETURN_IF_ERROR(check_scales_of_codes(p));
  FA3_RETURN_IF_ERROR(check_layout_of_codes(p));
  FA3_TRY(const FwdPlan forward, planners.forward(of_16_bits(p), gpu));
  steps.begin(part);
  if (has_no_rows(p) || has_no_keys(p)) {
    steps.add(forward);  // which reads no keys
    return {};
  }
  const auto decode = planners.decode(forward, p, gpu);
  if (!decode)
    return unsupported(
        "forward: k of f8_e4m3 beside q of {}, head_dim_qk={}, head_dim_v={}, {} queries: {} has "
        "no decode kernel for it; convert k and v, or use backend cpu",
        dtype_name(p.layout[kQ].dtype), p.head_dim_qk, p.head_dim_v, p.q.rows,
        gpu.backend == FA3_BACKEND_SIM ? "the simulator" : "sm90");
  const DecodePlans plans = make_decode_plans(*decode, forward, p, gpu);
  steps.add(plans.decode);
  if (plans.combine.merges()) steps.add(plans.combine);
  return {};
}

Status add_forward(const Planners& planners, const Part& part, const DeviceInfo& gpu,
                   StepList& steps) {
  const Problem& p = part.problem;
  if (must_widen(p)) return add_widening(planners, part, gpu, steps);
  FA3_TRY(FwdPlan forward, planners.forward(p, gpu));
  const FwdConfig& c = forward.config;
  steps.begin(part);
  const bool few = p.q.rows * p.group_size() <= kMostWidened && !has_no_keys(p);
  if (can_widen(p) && few && !forward.tuned) {
    FA3_TRY(const FwdPlan of_16, planners.forward(of_16_bits(p), gpu));
    if (const auto decode = planners.decode(of_16, p, gpu)) {
      const DecodePlans plans = make_decode_plans(*decode, of_16, p, gpu);
      steps.add(plans.decode);
      if (plans.combine.merges()) steps.add(plans.combine);
      return {};
    }
  }
  if (const auto decode = planners.decode(forward, p, gpu)) {
    const DecodePlans plans = make_decode_plans(*decode, forward, p, gpu);
    steps.add(plans.decode);
    if (plans.combine.merges()) steps.add(plans.combine);
    return {};
  }
  if (p.has_tree() && !has_no_keys(p))
    return unsupported(
        "forward: tree_mask with q of {}, head_dim_qk={}, head_dim_v={} and {} queries of {} "
        "heads: {} has no decode kernel for it; use attn_mask, or backend cpu",
        dtype_name(p.layout[kQ].dtype), p.head_dim_qk, p.head_dim_v, p.q.rows, p.heads_q,
        gpu.backend == FA3_BACKEND_SIM ? "the simulator" : "sm90");
  std::optional<DecodeConfig> beside;
  if (has_few_beside_many(p)) beside = planners.decode(forward, of_few_queries(p), gpu);
  if (forward.makes_v_image) steps.add(make_v_image_plan(forward, p));
  if (forward.score_offset) steps.add(make_score_offset_plan(p));
  if (c.mask.has_tensor()) steps.add(make_mask_bits_plan(p, c.tile.q(), c.tile.kv));
  if (beside) forward.skips_queries = kFewQueries;
  steps.add(forward);
  if (!beside) return {};
  DecodePlans plans = make_decode_plans(*beside, forward, of_few_queries(p), gpu);
  plans.decode.beside = plans.combine.beside = true;
  steps.add(plans.decode);
  if (plans.combine.merges()) steps.add(plans.combine);
  return {};
}

Status add_backward(const Planners& planners, const Part& part, const DeviceInfo& gpu,
                    StepList& steps) {
  const Problem& p = part.problem;
  FA3_TRY(const std::vector<BwdPlan> plans, planners.backward(p, gpu));
  steps.begin(part);
  if (!plans.empty() && plans.front().config.has_mask()) {
    const BwdConfig& c = plans.front().config;
    if (c.adds_mask())
      steps.add(make_mask_image_plan(p));
    else
      steps.add(make_mask_bits_plan(p, c.tile_q, c.tile_kv()));
  }
  for (const BwdPlan& plan : plans) steps.add(plan);
  return {};
}

// By the decode kernel, whose CTAs write what they alone read; else by a kernel before: no grid
// reads by TMA what another CTA of it has stored.
Status add_appending(const Planners& planners, const Part& call, const DeviceInfo& gpu,
                     StepList& steps) {
  FA3_RETURN_IF_ERROR(check_features(call.problem));
  if (!has_no_rows(call.problem)) {
    FA3_TRY(const FwdPlan forward, planners.forward(call.problem, gpu));
    auto decode = planners.decode(forward, call.problem, gpu);
    if (decode && planners.appends(*decode, call.problem)) {
      const DecodePlans plans =
          make_decode_plans(with_appends(*decode), forward, call.problem, gpu);
      steps.begin(call);
      steps.add(plans.decode);
      if (plans.combine.merges()) steps.add(plans.combine);
      return {};
    }
  }
  const Append append = make_append(call.problem);
  FA3_TRY(const AppendPlan plan, make_append_plan(append, call.problem, gpu));
  steps.keep(append);
  steps.begin(call);
  steps.add(plan);
  if (has_no_rows(call.problem)) return {};
  return add_forward(planners, append.attention, gpu, steps);
}

Result<KernelPlan> plan_by(const Planners& planners, const Problem& problem,
                           const DeviceInfo& gpu) {
  const Part call{problem, {}};
  StepList steps;
  if (problem.op == FA3_OP_QUANTIZE) {
    FA3_RETURN_IF_ERROR(add_quantization(planners, call, gpu, steps));
  } else if (problem.op == FA3_OP_COMBINE) {
    FA3_TRY(const MergePlan merge, make_merge_plan(problem));
    steps.begin(call);
    steps.add(merge);
  } else if (problem.op == FA3_OP_BACKWARD) {
    FA3_RETURN_IF_ERROR(add_backward(planners, call, gpu, steps));
  } else if (problem.appends()) {
    FA3_RETURN_IF_ERROR(add_appending(planners, call, gpu, steps));
  } else if (problem.precision == FA3_PRECISION_DEFAULT) {
    FA3_RETURN_IF_ERROR(add_forward(planners, call, gpu, steps));
  } else {
    const Recipe recipe = make_recipe(problem, kRecipeRows);
    steps.keep(recipe);
    for (int i = 0; i < recipe.count; ++i)
      FA3_RETURN_IF_ERROR(
          add_quantization(planners, recipe.quantizations[static_cast<size_t>(i)], gpu, steps));
    FA3_RETURN_IF_ERROR(add_forward(planners, recipe.attention, gpu, steps));
  }
  return steps.finish();
}

// Persistent kernels have a CTA, or two, on each SM that they know of.
DeviceInfo with_margin(DeviceInfo gpu, const Problem& p) {
  if (p.sm_margin > 0) gpu.multiprocessors = std::max(gpu.multiprocessors - p.sm_margin, 1);
  return gpu;
}

}  // namespace

Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu) {
  return plan_by(
      {&make_fwd_plan, &decode_config, &make_bwd_plans, &make_quantize_plans, &can_append}, problem,
      with_margin(gpu, problem));
}

Result<KernelPlan> plan_ahead(const Problem& problem, const DeviceInfo& gpu) {
  return plan_by({&ahead_fwd_plan, &ahead_decode_config, &ahead_bwd_plans, &ahead_quantize_plans,
                  &ahead_appends},
                 problem, with_margin(gpu, problem));
}

}  // namespace fa3::sm90
