// SPDX-License-Identifier: BSD-3-Clause
// programs.h — kernels by name: what `fa3 jit` compiles ahead of time.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "plan/named_program.h"

namespace fa3 {

// "all": the known kernels of each architecture (plan/sm90/known.h), and the samples given.
std::vector<NamedProgram> known_programs(std::span<const NamedProgram> samples);

// Those that a name or a prefix of it selects: "all", "samples…", "quantize…", "score_offset…",
// "mask_bits…", "mask_image…", "merge…", "bwd…", with a slash also with terms of scores, "fwd…"
// (plan/sm90/fwd/kernels.h).
// INVALID_ARGUMENT for a name that selects none.
Result<std::vector<NamedProgram>> programs_named(std::string_view name,
                                                 std::span<const NamedProgram> samples);

}  // namespace fa3
