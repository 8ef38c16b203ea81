// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — the architectures that have kernels, and which one's planner makes a GPU's.
#include "plan/plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "plan/sm90/kernels.h"
#include "plan/sm90/known.h"

namespace fa3 {
namespace {

using Planner = Result<KernelPlan>(const Problem&, const DeviceInfo&);

struct Architecture {
  int sm;             // DeviceInfo::sm
  const char* words;  // for messages
  Planner* any;
  Planner* ahead;
  std::vector<NamedProgram> (*known)();
  Result<std::vector<NamedProgram>> (*named)(std::string_view);
};
constexpr Architecture kArchitectures[] = {{90, "9.0 (Hopper: H100, H200)", &sm90::plan_kernels,
                                            &sm90::plan_ahead, &sm90::known_programs,
                                            &sm90::programs_named}};

const Architecture* architecture_of(int sm) {
  const auto* const own = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                       [&](const Architecture& a) { return a.sm == sm; });
  return own == std::end(kArchitectures) ? nullptr : own;
}

Result<KernelPlan> plan_by(Planner* Architecture::*planner, const Problem& problem,
                           const DeviceInfo& gpu) {
  if (const Architecture* const own = architecture_of(gpu.sm)) return (own->*planner)(problem, gpu);
  return unsupported("{}: no kernels for {} (compute capability {}.{}), need {}",
                     op_name(problem.op), gpu.name, gpu.sm / 10, gpu.sm % 10, gpus_with_kernels());
}

}  // namespace

Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu) {
  return plan_by(&Architecture::any, problem, gpu);
}

Result<KernelPlan> plan_ahead(const Problem& problem, const DeviceInfo& gpu) {
  return plan_by(&Architecture::ahead, problem, gpu);
}

bool has_kernels(int sm) { return architecture_of(sm) != nullptr; }

std::string gpus_with_kernels() {
  std::string text;
  for (const Architecture& a : kArchitectures)
    text += (text.empty() ? "" : " or ") + std::string(a.words);
  return text;
}

std::vector<NamedProgram> known_kernels() {
  std::vector<NamedProgram> all;
  for (const Architecture& a : kArchitectures) {
    const std::vector<NamedProgram> own = a.known();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

Result<std::vector<NamedProgram>> kernels_named(std::string_view name) {
  std::vector<NamedProgram> all;
  for (const Architecture& a : kArchitectures) {
    FA3_TRY(const std::vector<NamedProgram> own, a.named(name));
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

Plan with_kernels(Plan plan, KernelPlan kernels) {
  plan.recipe = std::move(kernels.recipe);
  plan.append = std::move(kernels.append);
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
