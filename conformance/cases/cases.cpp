// SPDX-License-Identifier: BSD-3-Clause
// cases.cpp — the table of conformance cases.
#include "conformance/cases/cases.h"

#include <map>
#include <regex>

namespace fa3::selftest {

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_wgmma_cases(cases);
  add_tma_cases(cases);
  add_mbarrier_cases(cases);
  add_matrix_cases(cases);
  add_mma_cases(cases);
  add_warp_cases(cases);
  add_convert_cases(cases);
  add_memory_cases(cases);
  add_sync_cases(cases);
  add_kernel_cases(cases);
  return cases;
}

Result<std::vector<Case>> chosen_cases(const std::string& filter) {
  constexpr size_t kMostCharacters =
      1000;  // std::regex recurses, and a long one overflows the stack
  if (filter.size() > kMostCharacters) {
    return invalid("conformance: filter has {} characters, need at most {}; shorten it",
                   filter.size(), kMostCharacters);
  }
  std::vector<Case> chosen;
  try {
    const std::regex pattern(filter);
    for (Case& test : all_cases()) {
      if (std::regex_search(test.name, pattern)) chosen.push_back(std::move(test));
    }
  } catch (const std::regex_error& error) {
    return invalid("conformance: filter='{}' is no regular expression ({}); correct it", filter,
                   error.what());
  }
  if (chosen.empty()) {
    return invalid("conformance: filter='{}' matches no case; list the cases without a filter",
                   filter);
  }
  return chosen;
}

std::vector<Program> programs_of(const std::vector<Case>& cases) {
  std::map<std::string, Program> programs;
  for (const Case& test : cases) programs.emplace(test.program.expression, test.program);
  std::vector<Program> list;
  for (auto& [expression, program] : programs) list.push_back(std::move(program));
  return list;
}

}  // namespace fa3::selftest
