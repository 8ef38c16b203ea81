// SPDX-License-Identifier: BSD-3-Clause
// explain.h — plans and problems in words: fa3_explain()'s JSON, and in which field two problems
// differ.
#pragma once

#include <optional>
#include <string>

#include "core/problem.h"
#include "plan/plan.h"

namespace fa3 {

const char* backend_name(fa3_backend backend);  // "auto", "cpu", "reference", "cuda", "sim"

// One JSON object, indented by two spaces.
std::string explain(const Plan& plan);

// The first field in which two problems differ, as it is called in explain()'s "problem".
struct Difference {
  std::string field;
  std::string a;
  std::string b;
};
std::optional<Difference> first_difference(const Problem& a, const Problem& b);

}  // namespace fa3
