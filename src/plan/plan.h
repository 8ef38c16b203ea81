// SPDX-License-Identifier: BSD-3-Clause
// plan.h — what a run will do: on a CPU tiles and tasks, on a GPU a list of kernels. Plans are made
// by pure functions of a problem and a device, and never edited: a fallback makes another plan.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "plan/cpu/cpu_plan.h"
#include "plan/recipe.h"
#include "plan/sm90/bwd/plan.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/fwd/score_offset_plan.h"
#include "plan/sm90/fwd/v_image_plan.h"
#include "plan/sm90/mask/bits_plan.h"
#include "plan/sm90/mask/image_plan.h"
#include "plan/sm90/quantize/plan.h"
#include "runtime/program.h"

namespace fa3 {

// Callers may pass a workspace of any alignment; backends get one aligned to this, a cache line.
inline constexpr size_t kWorkspaceAlign = 64;

// All GPU kernels. Each provides these in its own namespace, found by overload:
//   program_of, shape_of                     plan/            what is launched, and its grid
//   workspace_bytes, zeroed_bytes            plan/            its part of the workspace
//   name_of, head_dims_text, wider           plan/            its name in packs, for which head
//                                                             dims it is, a kernel that can stand
//                                                             in for it
//   tuned, declined                          plan/            whether a tuning file names it; the
//                                                             row that it names, and why not taken
//   describe, describe_estimate              plan/            its part of fa3_explain
//   check_addresses, launch                  backend/launch/  before and in every run
using Kernel = std::variant<sm90::QuantizePlan, sm90::VImagePlan, sm90::ScoreOffsetPlan,
                            sm90::MaskBitsPlan, sm90::MaskImagePlan, sm90::FwdPlan, sm90::BwdPlan>;

// One launch of a plan.
struct KernelStep {
  static constexpr int kAttention = -1;

  Kernel kernel;
  int part = kAttention;  // of a recipe: the quantisation that it is a step of
  Program program;
  LaunchShape shape;
  // Its part of the workspace; the first zeroed_bytes are 0 at launch.
  size_t workspace_offset = 0;
  size_t workspace_bytes = 0;
  size_t zeroed_bytes = 0;
};

struct Plan {
  const Problem& computed() const { return decoded ? *decoded : problem; }

  Problem problem;
  fa3_backend backend = FA3_BACKEND_AUTO;  // resolved: never AUTO
  std::string why;                         // one sentence: why this backend
  int threads = 1;                         // scratch slots; most tasks that run at once
  size_t workspace_bytes = 0;              // kWorkspaceAlign − 1 for alignment included
  std::optional<CpuPlan> cpu;              // backend cpu only
  // With a precision: how the inputs become 8 bits, which begin the workspace.
  std::optional<Recipe> recipe;
  // On the processor, of a problem with 8-bit inputs: the FP32 problem that is computed, and its
  // inputs' bytes, which come next in the workspace.
  std::optional<Problem> decoded;
  size_t decoded_bytes = 0;
  std::vector<KernelStep> steps;  // backends cuda and sim, in the order of their launches
};

// Bytes to ask of the caller so that `bytes` remain after alignment.
inline size_t with_alignment(size_t bytes) { return bytes == 0 ? 0 : bytes + kWorkspaceAlign - 1; }

// The step for a kernel, whose part of the workspace begins at `workspace_offset`.
KernelStep step_of(const Kernel& kernel, size_t workspace_offset);

// What a GPU runs for a problem.
struct KernelPlan {
  std::optional<Recipe> recipe;
  std::vector<KernelStep> steps;
};

// UNSUPPORTED with the reason where there are no kernels for it.
Result<KernelPlan> plan_kernels(const Problem& problem, const DeviceInfo& gpu);

// A plan of kernels that somebody has chosen.
Plan plan_with(const Problem& problem, std::vector<KernelStep> steps);

// The problem that a step is of, and its buffers, in a plan whose aligned workspace is given.
const Problem& problem_of(const Plan& plan, const KernelStep& step);
Buffers buffers_of(const Plan& plan, const KernelStep& step, const Buffers& call,
                   std::byte* workspace);

// The image of V that the plan takes, would take, or writes; no tiles where there is none.
ImageTile image_of(const Plan& plan);

// Bytes of workspace for the recipe and all steps.
size_t kernel_bytes(const Plan& plan);

}  // namespace fa3
