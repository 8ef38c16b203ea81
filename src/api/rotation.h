// SPDX-License-Identifier: BSD-3-Clause
// rotation.h — how quantize turns a tensor: rotary embedding, signs, Hadamard transform.
#pragma once

#include <cstdint>

#include "api/args.h"
#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// The rotation of rows of head_dim columns. INVALID_ARGUMENT for blocks that do not divide them and
// for tables that do not fit them or each other. The tables were checked each by itself.
Result<Rotation> read_rotation(const Args& args, int64_t head_dim);

}  // namespace fa3
