// SPDX-License-Identifier: BSD-3-Clause
// kernels.cpp — the kernels before, of and behind each operation on Hopper.
#include "plan/sm90/kernels.h"

#include <utility>

namespace fa3::sm90 {
namespace {

// Q by rows; K and V by heads, which is what the forward takes.
constexpr RecipeRows kRecipeRows{1, 0, 0};

Status check_mask(const Problem& p) {
  if (p.top_left) {
    return unsupported(
        "{}: mask_alignment of top left with lengths that differ, or seqused or cu_seqlens, on "
        "sm90 (backends cuda and sim): kernels count from the bottom right; use backend cpu, or "
        "leave out the keys that no query sees",
        op_name(p.op));
  }
  return {};
}

Status add_quantization(const Part& part, const DeviceInfo& gpu, StepList& steps) {
  const Problem& p = part.problem;
  FA3_TRY(const std::vector<QuantizePlan> plans, make_quantize_plans(p, gpu));
  steps.begin(part);
  for (const QuantizePlan& plan : plans) steps.add(plan);
  if (p.image.keys > 0 && image_tiles(p.q, p.batch, 1) > 0) steps.add(make_v_image_plan(p));
  return {};
}

Status add_forward(const Part& part, const DeviceInfo& gpu, StepList& steps) {
  const Problem& p = part.problem;
  FA3_TRY(const FwdPlan forward, make_fwd_plan(p, gpu));
  const FwdConfig& c = forward.config;
  steps.begin(part);
  if (forward.makes_v_image) steps.add(make_v_image_plan(forward, p));
  if (forward.score_offset) steps.add(make_score_offset_plan(p));
  if (c.has_mask()) steps.add(make_mask_bits_plan(p, c.tile_q(), c.tile_kv));
  steps.add(forward);
  return {};
}

Status add_backward(const Part& part, const DeviceInfo& gpu, StepList& steps) {
  const Problem& p = part.problem;
  FA3_TRY(const std::vector<BwdPlan> plans, make_bwd_plans(p, gpu));
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

}  // namespace

Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu) {
  FA3_RETURN_IF_ERROR(check_mask(problem));
  const Part call{problem, {}};
  StepList steps;
  if (problem.op == FA3_OP_QUANTIZE) {
    FA3_RETURN_IF_ERROR(add_quantization(call, gpu, steps));
  } else if (problem.op == FA3_OP_BACKWARD) {
    FA3_RETURN_IF_ERROR(add_backward(call, gpu, steps));
  } else if (problem.precision == FA3_PRECISION_DEFAULT) {
    FA3_RETURN_IF_ERROR(add_forward(call, gpu, steps));
  } else {
    const Recipe recipe = make_recipe(problem, kRecipeRows);
    steps.keep(recipe);
    for (int i = 0; i < recipe.count; ++i)
      FA3_RETURN_IF_ERROR(add_quantization(recipe.quantizations[i], gpu, steps));
    FA3_RETURN_IF_ERROR(add_forward(recipe.attention, gpu, steps));
  }
  return steps.finish();
}

}  // namespace fa3::sm90
