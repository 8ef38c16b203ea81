// SPDX-License-Identifier: BSD-3-Clause
// cases.h — all conformance cases, by area.
#pragma once

#include <string>
#include <vector>

#include "conformance/cases/case.h"

namespace fa3::selftest {

std::vector<Case> all_cases();

// Those whose name has a match of a regular expression (ECMAScript). INVALID_ARGUMENT when it is
// not one, or matches no name.
Result<std::vector<Case>> chosen_cases(const std::string& filter);

// Each program once.
std::vector<Program> programs_of(const std::vector<Case>& cases);

// The parts of all_cases(); each adds the cases of one area.
void add_wgmma_cases(std::vector<Case>& cases);
void add_tma_cases(std::vector<Case>& cases);
void add_mbarrier_cases(std::vector<Case>& cases);
void add_matrix_cases(std::vector<Case>& cases);
void add_mma_cases(std::vector<Case>& cases);
void add_warp_cases(std::vector<Case>& cases);
void add_convert_cases(std::vector<Case>& cases);
void add_memory_cases(std::vector<Case>& cases);
void add_sync_cases(std::vector<Case>& cases);
void add_kernel_cases(std::vector<Case>& cases);

}  // namespace fa3::selftest
