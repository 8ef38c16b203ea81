// SPDX-License-Identifier: BSD-3-Clause
// plan.h — what a run will do: on a CPU tiles and tasks, on a GPU a list of kernels. Plans are made
// by pure functions of a problem and a device, and never edited: a fallback makes another plan.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "plan/append.h"
#include "plan/cpu/cpu_plan.h"
#include "plan/named_program.h"
#include "plan/steps.h"

namespace fa3 {

// Callers may pass a workspace of any alignment; backends get one aligned to this, a cache line.
inline constexpr size_t kWorkspaceAlign = 64;

struct Plan {
  // The problem that a backend of the host computes.
  const Problem& computed() const {
    return decoded ? *decoded : append ? append->attention.problem : problem;
  }

  Problem problem;
  fa3_backend backend = FA3_BACKEND_AUTO;  // resolved: never AUTO
  std::string why;                         // one sentence: why this backend
  int threads = 1;                         // scratch slots; most tasks that run at once
  size_t workspace_bytes = 0;              // kWorkspaceAlign − 1 for alignment included
  std::optional<CpuPlan> cpu;              // backend cpu only
  // With a precision: how the inputs become 8 bits, which begin the workspace.
  std::optional<Recipe> recipe;
  // Of a forward that appends: what that leaves in the workspace, which it begins.
  std::optional<Append> append;
  // On the processor, of a problem with 8-bit inputs: the FP32 problem that is computed, and its
  // inputs' bytes, which come next in the workspace.
  std::optional<Problem> decoded;
  size_t decoded_bytes = 0;
  // Backends cuda and sim: launches in their order, and what they use of the workspace.
  std::vector<KernelStep> steps;
  std::vector<PlacedSlice> slices;
};

// Bytes to ask of the caller so that `bytes` remain after alignment.
inline size_t with_alignment(size_t bytes) { return bytes == 0 ? 0 : bytes + kWorkspaceAlign - 1; }

// The kernels for a problem by the planner of the GPU's architecture. UNSUPPORTED with the reason
// where there are none.
Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu);
// A plan of kernels that were compiled ahead, as for the simulator.
Result<KernelPlan> plan_ahead(const Problem& problem, const DeviceInfo& gpu);

// GPUs that have a planner: by DeviceInfo::sm, and in words.
bool has_kernels(int sm);
std::string gpus_with_kernels();

// Kernels by name, of all architectures: those of a bundle of all, and those that a name or a
// prefix of it selects, perhaps none.
std::vector<NamedProgram> known_kernels();
Result<std::vector<NamedProgram>> kernels_named(std::string_view name);

// The plan with these kernels for its problem.
Plan with_kernels(Plan plan, KernelPlan kernels);

// A plan of kernels that somebody has chosen.
Plan plan_with(const Problem& problem, const std::vector<Kernel>& kernels);

// The image of V that the plan takes, would take, or writes; no tiles where there is none.
ImageTile image_of(const Plan& plan);

// Bytes of all slices.
size_t kernel_bytes(const Plan& plan);

}  // namespace fa3
