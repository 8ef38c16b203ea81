// SPDX-License-Identifier: BSD-3-Clause
// v_image.h — the image of V that fa3_quantize writes for a GPU's forward kernel, on the processor.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace fa3::cpu {

// Of one head of a sequence, from its codes: every tile with rows that count, rows that do not as
// zeros.
void write_v_image(const Problem& problem, const Buffers& buffers, int64_t b, int64_t head);

}  // namespace fa3::cpu
