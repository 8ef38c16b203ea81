// SPDX-License-Identifier: BSD-3-Clause
// cases.cpp — the table of conformance cases.
#include "selftest/cases.h"

namespace fa3::selftest {

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_wgmma_cases(cases);
  add_tma_cases(cases);
  add_mbarrier_cases(cases);
  add_matrix_cases(cases);
  add_warp_cases(cases);
  add_convert_cases(cases);
  return cases;
}

}  // namespace fa3::selftest
