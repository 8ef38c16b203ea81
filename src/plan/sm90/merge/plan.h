// SPDX-License-Identifier: BSD-3-Clause
// plan.h — the kernel that merges a caller's parts (fa3_combine): its types and its grid.
#pragma once

#include <cstdint>
#include <string>

#include "core/json.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/sm90/merge/config.h"
#include "plan/plan_kernel.h"
#include "runtime/program.h"

namespace fa3::sm90 {

// Of tensors without rows a grid of one CTA, which is never launched.
struct MergePlan : PlainKernel {
  MergeConfig config;
  int64_t row_pieces = 1;  // of config.columns() columns
  int64_t pieces = 0;      // of a batch entry
  int64_t batch = 0;
};

// UNSUPPORTED where the kernel cannot count the pieces.
Result<MergePlan> make_merge_plan(const Problem& problem);

// See plan/plan_kernel.h.
Program program_of(const MergePlan& plan);
LaunchShape shape_of(const MergePlan& plan);
std::string name_of(const MergePlan& plan);
void describe(const MergePlan& plan, const Problem& problem, Json& json);

// The kernel as C++ names it.
std::string merge_expression(const MergeConfig& config);

}  // namespace fa3::sm90
