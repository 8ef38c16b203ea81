// SPDX-License-Identifier: BSD-3-Clause
// cpu.h — the cpu backend's entry points: tiled FlashAttention-2 with SIMD kernels, chosen at run
// time.
#pragma once

#include <cstddef>
#include <optional>

#include "core/device.h"
#include "core/executor.h"
#include "core/problem.h"
#include "core/status.h"
#include "plan/plan.h"

namespace fa3::cpu {

// The instruction set to use: `asked` where given (FA3_SIMD), else the fastest that processor and
// build have. INVALID_ARGUMENT when they do not have the one asked for.
Result<Isa> choose_isa(std::optional<Isa> asked);

// Computes a plan whose arguments were validated. workspace holds plan.workspace_bytes bytes, any
// alignment. Throws Error (cancelled, a task's failure).
void forward(const Plan& plan, const Buffers& buffers, std::byte* workspace,
             const Executor& executor);
void backward(const Plan& plan, const Buffers& buffers, std::byte* workspace,
              const Executor& executor);

}  // namespace fa3::cpu
