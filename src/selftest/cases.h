// SPDX-License-Identifier: BSD-3-Clause
// cases.h — all conformance cases, by area.
#pragma once

#include <vector>

#include "selftest/case.h"

namespace fa3::selftest {

std::vector<Case> all_cases();

// What all_cases() is made of; each adds the cases of one area.
void add_wgmma_cases(std::vector<Case>& cases);
void add_tma_cases(std::vector<Case>& cases);
void add_mbarrier_cases(std::vector<Case>& cases);
void add_matrix_cases(std::vector<Case>& cases);
void add_warp_cases(std::vector<Case>& cases);
void add_convert_cases(std::vector<Case>& cases);

}  // namespace fa3::selftest
