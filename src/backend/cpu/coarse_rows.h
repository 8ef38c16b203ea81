// SPDX-License-Identifier: BSD-3-Clause
// coarse_rows.h — before the backward: rows whose LSE is too coarse to make weights of.
#pragma once

#include <cstddef>

#include "backend/cpu/backward_head.h"
#include "core/executor.h"

namespace fa3::cpu {

// Looks for rows whose LSE is coarse (coarse_lse.h), and sets run.coarse for them: one more pass
// over the keys that they see. Where there is none it reads LSE only. `total`: units of the call's
// progress, none of which this is.
void measure_coarse_rows(Backward& run, std::byte* workspace, const Executor& executor,
                         int64_t total);

}  // namespace fa3::cpu
