// SPDX-License-Identifier: BSD-3-Clause
// tensor.h — what one fa3_tensor must satisfy by itself, and its strides and extent in memory.
#pragma once

#include <array>
#include <string>

#include "api/args.h"
#include "core/overlap.h"
#include "core/status.h"
#include "fa3/fa3.h"

namespace fa3 {

// Rank, dtype, extents ≥ 0, sizes that 63 bits hold, and strides: set, ≥ 0, the last 1. For an
// output also that no two of its elements share memory. The tensor is present (rank ≠ 0).
Status check_tensor(const Args& args, TensorId id);

// Strides in elements; 0 where no element is reached by one: in a dimension of extent 1, and in all
// of a tensor without elements. Only of a tensor that passed check_tensor.
std::array<int64_t, FA3_MAX_RANK> strides_of(const fa3_tensor& tensor);

// The memory of a tensor that passed check_tensor. Data may be NULL.
View view_of(const fa3_tensor& tensor);

// "(2, 128, 4, 64)"; values = shape or stride of a tensor.
std::string tuple_text(const int64_t* values, int rank);

}  // namespace fa3
