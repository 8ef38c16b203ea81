// SPDX-License-Identifier: BSD-3-Clause
// explain.h — plans and problems in words: fa3_explain()'s JSON, and in which field two problems
// differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/problem.h"
#include "plan/plan.h"

namespace fa3 {

// One JSON object, indented by two spaces. on_gpu: the kernels whose time is estimated, those of a
// real GPU; none for a backend of the host.
std::string explain(const Plan& plan, const std::vector<KernelStep>& on_gpu);

// The first field in which two problems differ, as it is called in explain()'s "problem".
struct Difference {
  std::string field;
  std::string a;
  std::string b;
};
std::optional<Difference> first_difference(const Problem& a, const Problem& b);

}  // namespace fa3
