// SPDX-License-Identifier: BSD-3-Clause
// problem.h — from arguments to a validated Problem. Reads shapes, dtypes, strides and flags; never
// data.
#pragma once

#include "api/args.h"
#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// INVALID_ARGUMENT or UNSUPPORTED naming the first argument that is wrong, its value, what is
// needed.
Result<Problem> make_problem(const Args& args);

}  // namespace fa3
