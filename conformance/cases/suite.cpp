// SPDX-License-Identifier: BSD-3-Clause
// suite.cpp — one case, several devices, one verdict.
#include "conformance/cases/suite.h"

#include <fmt/core.h>

#include <optional>

#include "conformance/cases/run.h"

namespace fa3::selftest {

Verdict judge(std::vector<Target>& targets, const Case& test, uint64_t seed) {
  Verdict verdict;
  bool failed = false, passed = false;
  const auto add = [&](const std::string& who, const std::string& what) {
    verdict.message += fmt::format("{}{}: {}", verdict.message.empty() ? "" : "; ", who, what);
  };
  const Target* first = nullptr;
  std::vector<Bytes> first_after;
  for (Target& target : targets) {
    const std::string name = target.runtime->name();
    if (!target.lost_in.empty()) {
      add(name, fmt::format("runs nothing any more since {}", target.lost_in));
      continue;
    }
    Outcome outcome = run_case(*target.runtime, test, seed);
    (outcome.passed ? passed : failed) = true;
    if (!outcome.passed) add(name, outcome.message);
    if (outcome.device_lost) {
      target.lost_in = test.name;
      verdict.device_lost = true;
    }
    if (outcome.after.empty()) continue;
    if (first == nullptr) {
      first = &target;
      first_after = std::move(outcome.after);
      continue;
    }
    const std::string difference = compare_runs(test, seed, first_after, outcome.after);
    if (difference.empty()) continue;
    add(fmt::format("{} and {}", first->runtime->name(), name), difference);
    failed = true;
  }
  verdict.status = failed   ? FA3_CONFORMANCE_FAILED
                   : passed ? FA3_CONFORMANCE_PASSED
                            : FA3_CONFORMANCE_SKIPPED;
  return verdict;
}

}  // namespace fa3::selftest
