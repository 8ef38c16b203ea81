// SPDX-License-Identifier: BSD-3-Clause
// steps.cpp — steps from kernels, and which slices they share.
#include "plan/steps.h"

#include <fmt/core.h>

#include <utility>

#include "core/status.h"

namespace fa3 {

std::byte* KernelStep::slice(std::string_view name, std::byte* workspace) const {
  for (const Use& use : uses)
    if (use.name == name) return workspace + use.offset;
  return nullptr;
}

KernelStep with_kernel(KernelStep step, const Kernel& kernel) {
  std::visit(
      [&step](const auto& k) {
        step.program = program_of(k);
        step.shape = shape_of(k);
      },
      kernel);
  step.kernel = kernel;
  return step;
}

void StepList::keep(Recipe recipe) {
  plan_.slices = recipe.slices;
  plan_.recipe = std::move(recipe);
}

void StepList::keep(Append append) {
  plan_.slices = append.slices;
  plan_.append = std::move(append);
}

void StepList::begin(Part part) {
  part_ = std::make_shared<const Part>(std::move(part));
  first_of_part_ = plan_.slices.size();
}

int StepList::found(std::string_view name) const {
  for (size_t i = first_of_part_; i < plan_.slices.size(); ++i)
    if (plan_.slices[i].slice.name == name) return static_cast<int>(i);
  return -1;
}

int StepList::written(const Slice& slice) {
  const int i = found(slice.name);
  if (i >= 0) {
    if (plan_.slices[static_cast<size_t>(i)].slice.bytes == slice.bytes) return i;
    throw Error(FA3_INTERNAL,
                fmt::format("plan: kernels ask for slice {} of {} and of {} bytes", slice.name,
                            slice.bytes, plan_.slices[static_cast<size_t>(i)].slice.bytes));
  }
  const int step = static_cast<int>(plan_.steps.size());
  plan_.slices.push_back({slice, step, step, 0});
  return static_cast<int>(plan_.slices.size()) - 1;
}

void StepList::use(const char* name, int slice, KernelStep& step) {
  plan_.slices[static_cast<size_t>(slice)].last = static_cast<int>(plan_.steps.size());
  step.uses.push_back({name, slice});
}

void StepList::add(const Kernel& kernel) {
  KernelStep step = with_kernel({}, kernel);
  step.part = part_;
  std::visit(
      [&](const auto& k) {
        for (const Slice& slice : writes(k)) use(slice.name, written(slice), step);
        for (const char* name : reads(k)) {
          const int i = found(name);
          if (i < 0)
            throw Error(FA3_INTERNAL, fmt::format("plan: {} reads slice {}, which no kernel writes",
                                                  step.program.expression, name));
          use(name, i, step);
        }
      },
      kernel);
  plan_.steps.push_back(std::move(step));
}

KernelPlan StepList::finish() {
  plan_.bytes = lay_out(plan_.slices);
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    KernelStep& step = plan_.steps[i];
    for (KernelStep::Use& use : step.uses)
      use.offset = plan_.slices[static_cast<size_t>(use.slice)].offset;
    step.zeroed = zeroed_before(static_cast<int>(i), plan_.slices);
  }
  return std::exchange(plan_, {});
}

}  // namespace fa3
