// SPDX-License-Identifier: BSD-3-Clause
// limits.h — what the quantising kernels take.
#pragma once

#include "core/problem.h"
#include "core/status.h"
#include "device/sm90/quantize/config.h"

namespace fa3::sm90 {

inline constexpr int64_t kMaxQuantizeGrid = 65535;  // of y and z: parts of rows, sequences

// UNSUPPORTED with the reason where value is above the limit.
Status check_quantize_limit(const char* what, int64_t value, int64_t limit, const char* remedy);

// What turns rows of x; UNSUPPORTED with the reason for columns that no kernel takes.
Result<TurnConfig> turn_of(const Problem& problem);

// UNSUPPORTED with the reason for sizes and strides that no kernel takes.
Status check_quantize(const Problem& problem);

}  // namespace fa3::sm90
