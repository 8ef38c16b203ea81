// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — the list of kernels for a problem on a GPU, and the steps of a list.
#include "plan/plan.h"

#include <algorithm>
#include <utility>

namespace fa3 {
namespace {

// Q by rows; K and V by heads, which is what the forward takes.
constexpr RecipeRows kRowsOfGpu{1, 0, 0};

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

Status add_quantization(const Problem& problem, const DeviceInfo& gpu, int part, size_t offset,
                        std::vector<KernelStep>& steps) {
  FA3_TRY(const std::vector<sm90::QuantizePlan> plans, sm90::make_quantize_plans(problem, gpu));
  for (const sm90::QuantizePlan& plan : plans) {
    steps.push_back(step_of(plan, offset));
    steps.back().part = part;
  }
  if (problem.image.keys > 0 && image_tiles(problem.q, problem.batch, 1) > 0)
    steps.push_back(step_of(sm90::make_v_image_plan(problem), offset));
  return {};
}

}  // namespace

KernelStep step_of(const Kernel& kernel, size_t workspace_offset) {
  KernelStep step;
  step.workspace_offset = workspace_offset;
  std::visit(
      [&step](const auto& k) {
        step.program = program_of(k);
        step.shape = shape_of(k);
        step.workspace_bytes = workspace_bytes(k);
        step.zeroed_bytes = zeroed_bytes(k);
      },
      kernel);
  step.kernel = kernel;
  return step;
}

Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu) {
  if (gpu.sm != 90) {
    return unsupported("{}: no kernels for {} (compute capability {}.{}), need 9.0, a Hopper GPU",
                       op_name(problem.op), gpu.name, gpu.sm / 10, gpu.sm % 10);
  }
  FA3_RETURN_IF_ERROR(check_mask(problem));
  KernelPlan plan;
  if (problem.op == FA3_OP_QUANTIZE) {
    FA3_RETURN_IF_ERROR(add_quantization(problem, gpu, KernelStep::kAttention, 0, plan.steps));
    return plan;
  }
  if (problem.op == FA3_OP_BACKWARD) {
    FA3_TRY(const std::vector<sm90::BwdPlan> plans, sm90::make_bwd_plans(problem, gpu));
    if (!plans.empty() && plans.front().config.has_mask()) {
      const sm90::BwdPlan& first = plans.front();
      const sm90::BwdConfig& c = first.config;
      const size_t at = first.mask_at();
      plan.steps.push_back(
          c.adds_mask()
              ? step_of(sm90::make_mask_image_plan(problem, at), 0)
              : step_of(sm90::make_mask_bits_plan(problem, c.tile_q, c.tile_kv(), at), 0));
    }
    for (const sm90::BwdPlan& backward : plans) plan.steps.push_back(step_of(backward, 0));
    return plan;
  }
  size_t offset = 0;  // steps come one after another, and share what lies there
  if (problem.precision != FA3_PRECISION_DEFAULT) {
    plan.recipe = make_recipe(problem, kRowsOfGpu);
    offset = plan.recipe->bytes;
    for (int i = 0; i < plan.recipe->count; ++i)
      FA3_RETURN_IF_ERROR(
          add_quantization(plan.recipe->quantizations[i].problem, gpu, i, offset, plan.steps));
  }
  const Problem& attention = plan.recipe ? plan.recipe->attention : problem;
  FA3_TRY(const sm90::FwdPlan forward, sm90::make_fwd_plan(attention, gpu));
  if (sm90::makes_v_image(forward, attention))
    plan.steps.push_back(step_of(sm90::make_v_image_plan(forward, attention), offset));
  if (sm90::needs_score_offset(attention))
    plan.steps.push_back(step_of(sm90::make_score_offset_plan(forward, attention), offset));
  if (forward.config.has_mask()) {
    const sm90::FwdConfig& c = forward.config;
    plan.steps.push_back(step_of(
        sm90::make_mask_bits_plan(attention, c.tile_q(), c.tile_kv, forward.mask_at()), offset));
  }
  plan.steps.push_back(step_of(forward, offset));
  return plan;
}

Plan plan_with(const Problem& problem, std::vector<KernelStep> steps) {
  Plan plan;
  plan.problem = problem;
  plan.steps = std::move(steps);
  plan.workspace_bytes = with_alignment(kernel_bytes(plan));
  return plan;
}

const Problem& problem_of(const Plan& plan, const KernelStep& step) {
  if (!plan.recipe) return plan.problem;
  return step.part == KernelStep::kAttention
             ? plan.recipe->attention
             : plan.recipe->quantizations[static_cast<size_t>(step.part)].problem;
}

Buffers buffers_of(const Plan& plan, const KernelStep& step, const Buffers& call,
                   std::byte* workspace) {
  if (!plan.recipe) return call;
  return step.part == KernelStep::kAttention ? attention_buffers(*plan.recipe, call, workspace)
                                             : buffers_of(*plan.recipe, step.part, call, workspace);
}

ImageTile image_of(const Plan& plan) {
  if (plan.problem.op == FA3_OP_QUANTIZE) return plan.problem.image;
  if (plan.recipe) return {};  // its own
  for (const KernelStep& step : plan.steps) {
    const auto* const forward = std::get_if<sm90::FwdPlan>(&step.kernel);
    if (forward != nullptr && forward->config.v_image)
      return {forward->config.tile_kv, forward->config.head_dim_v};
  }
  return {};
}

size_t kernel_bytes(const Plan& plan) {
  size_t bytes = plan.recipe ? plan.recipe->bytes : 0;
  for (const KernelStep& step : plan.steps)
    bytes = std::max(bytes, step.workspace_offset + step.workspace_bytes);
  return bytes;
}

}  // namespace fa3
