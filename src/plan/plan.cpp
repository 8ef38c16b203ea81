// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — which architecture's planner makes a GPU's kernels.
#include "plan/plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "plan/sm90/kernels.h"

namespace fa3 {
namespace {

using Planner = Result<KernelPlan>(const Problem&, const DeviceInfo&);

struct Architecture {
  int sm;  // DeviceInfo::sm
  Planner* any;
  Planner* ahead;
};
constexpr Architecture kArchitectures[] = {{90, &sm90::plan_kernels, &sm90::plan_ahead}};

Result<KernelPlan> plan_by(Planner* Architecture::*planner, const Problem& problem,
                           const DeviceInfo& gpu) {
  const auto* const own =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const Architecture& architecture) { return architecture.sm == gpu.sm; });
  if (own != std::end(kArchitectures)) return (own->*planner)(problem, gpu);
  return unsupported("{}: no kernels for {} (compute capability {}.{}), need 9.0, a Hopper GPU",
                     op_name(problem.op), gpu.name, gpu.sm / 10, gpu.sm % 10);
}

}  // namespace

Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu) {
  return plan_by(&Architecture::any, problem, gpu);
}

Result<KernelPlan> plan_ahead(const Problem& problem, const DeviceInfo& gpu) {
  return plan_by(&Architecture::ahead, problem, gpu);
}

Plan with_kernels(Plan plan, KernelPlan kernels) {
  plan.recipe = std::move(kernels.recipe);
  plan.steps = std::move(kernels.steps);
  plan.slices = std::move(kernels.slices);
  plan.workspace_bytes = with_alignment(kernels.bytes);
  return plan;
}

Plan plan_with(const Problem& problem, const std::vector<Kernel>& kernels) {
  StepList steps;
  steps.begin({problem, {}});
  for (const Kernel& kernel : kernels) steps.add(kernel);
  Plan plan;
  plan.problem = problem;
  return with_kernels(std::move(plan), steps.finish());
}

ImageTile image_of(const Plan& plan) {
  if (plan.problem.op == FA3_OP_QUANTIZE) return plan.problem.image;
  if (plan.recipe || plan.steps.empty()) return {};  // a recipe's is its own
  return std::visit([](const auto& kernel) { return image_of(kernel); }, plan.steps.back().kernel);
}

size_t kernel_bytes(const Plan& plan) {
  size_t bytes = 0;
  for (const PlacedSlice& slice : plan.slices) bytes = std::max(bytes, slice.end());
  return bytes;
}

}  // namespace fa3
