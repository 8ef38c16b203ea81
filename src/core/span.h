// SPDX-License-Identifier: BSD-3-Clause
// span.h — how much memory a tensor takes.
#pragma once

#include "core/problem.h"

namespace fa3 {

// Elements from a tensor's first to its last, gaps included; 0 where it has none. The tensor has a
// layout.
int64_t span_of(const Problem& problem, TensorId id);

// Elements of a tensor without a layout.
int64_t elements_of(const Problem& problem, TensorId id);

}  // namespace fa3
