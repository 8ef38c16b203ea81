// SPDX-License-Identifier: BSD-3-Clause
// steps.h — the launches of a plan: each knows its kernel, the problem that it computes, where its
// tensors come from, and its slices of the workspace.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/problem.h"
#include "plan/append.h"
#include "plan/kernels.h"
#include "plan/part.h"
#include "plan/recipe.h"
#include "plan/slices.h"
#include "runtime/program.h"

namespace fa3 {

// One launch of a plan.
struct KernelStep {
  // A slice that the kernel uses, by the name that the kernel gives it.
  struct Use {
    const char* name;
    int slice;  // of the plan
    size_t offset = 0;
  };

  Kernel kernel;
  std::shared_ptr<const Part> part;
  Program program;
  LaunchShape shape;
  std::vector<Use> uses;
  std::vector<ZeroedRange> zeroed;  // before the launch

  const Problem& problem() const { return part->problem; }
  // The slice in an aligned workspace; null for one that the kernel does not use.
  std::byte* slice(std::string_view name, std::byte* workspace) const;
};

// The step with a kernel that uses the same slices.
KernelStep with_kernel(KernelStep step, const Kernel& kernel);

// The kernels that a GPU runs for a problem.
struct KernelPlan {
  std::optional<Recipe> recipe;
  std::optional<Append> append;
  std::vector<KernelStep> steps;  // in the order of their launches
  std::vector<PlacedSlice> slices;
  size_t bytes = 0;  // of all slices
};

// Collects steps, and lays out their slices when all are there.
class StepList {
 public:
  // First of all: the tensors of a recipe, or of what is appended, become slices of the whole plan.
  void keep(Recipe recipe);
  void keep(Append append);
  // The kernels that follow compute this part. Names of slices begin anew.
  void begin(Part part);
  // Throws INTERNAL where the kernel reads a slice that none before it writes.
  void add(const Kernel& kernel);
  // The list is empty then.
  KernelPlan finish();

 private:
  // The slice of the present part; −1 where there is none.
  int found(std::string_view name) const;
  int written(const Slice& slice);
  void use(const char* name, int slice, KernelStep& step);

  std::shared_ptr<const Part> part_;
  size_t first_of_part_ = 0;  // slices before are of other parts
  KernelPlan plan_;
};

}  // namespace fa3
