// SPDX-License-Identifier: BSD-3-Clause
// scales.h — the rules of fa3.h for the scales and offsets of 8-bit tensors.
#pragma once

#include <array>

#include "api/args.h"
#include "api/dims.h"
#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// The blocks of q_scale, k_scale and v_scale. INVALID_ARGUMENT for scales or offsets of tensors
// that are not of 8 bits, and for blocks without scales.
Result<std::array<ScaleBlock, 3>> read_scale_blocks(const Args& args);

// What the shape of a scale says beyond its extents; the problem's dimensions are known.
void read_scale_shape(const fa3_tensor& scale, Problem& problem, TensorId id);

// The dimensions that a scale of that rank must have; of a rank that is none, those of blocks.
Dims dims_of_scale(const Problem& problem, TensorId id, int rank);

}  // namespace fa3
