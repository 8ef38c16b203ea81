// SPDX-License-Identifier: BSD-3-Clause
// launch_shape.h — the limits that Hopper has for a launch, checked once for GPU and simulator.
#pragma once

#include "core/status.h"
#include "runtime/program.h"

namespace fa3 {

inline constexpr u32 kHopperSmemBytes = 227 * 1024;  // most dynamic shared memory of a CTA
inline constexpr size_t kMaxArgsBytes = 32764;       // of a kernel's arguments

// INVALID_ARGUMENT naming program, field, value and limit.
Status check_launch(const Program& program, const LaunchShape& shape, size_t args_bytes,
                    u32 smem_limit_bytes = kHopperSmemBytes);

}  // namespace fa3
