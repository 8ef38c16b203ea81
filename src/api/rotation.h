// SPDX-License-Identifier: BSD-3-Clause
// rotation.h — how quantize turns a tensor, and a forward what it appends: rotary embedding, signs,
// Hadamard transform.
#pragma once

#include <cstdint>

#include "api/args.h"
#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// The rotation of x's rows, or of k_new's and q's, of a problem whose shape is known.
// INVALID_ARGUMENT for blocks that do not divide head_dim and for tables that do not fit these or
// each other. The tables were checked each
// by itself.
Result<Rotation> read_rotation(const Args& args, const Problem& problem);

}  // namespace fa3
