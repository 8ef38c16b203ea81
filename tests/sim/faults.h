// SPDX-License-Identifier: BSD-3-Clause
// faults.h — kernels with one line wrong: what the simulator must report, and on which seeds.
// A pipeline is a struct with its kernel's Args, a device, clear() of the outputs, run(kernel) and
// wrong(), the number of outputs that differ from the host's.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "sim/kit.h"
#include "tests/kit/thorough.h"

namespace fa3::sim {

enum class Shows {
  kEverySeed,  // in the clocks, or on every path
  kWithin64,   // depends on the path: on some of 64 seeds
  kNumbers,    // no rule is broken, the result is wrong on every seed
};

// What a report must say: the rule, and parts of the object's name, of the message, of `missing`.
struct Report {
  Rule rule;
  const char* object;
  const char* message;
  const char* missing;

  bool fits(const Violation& violation) const {
    const auto has = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos;
    };
    return violation.rule == rule && has(violation.object, object) &&
           has(violation.message, message) && has(violation.missing, missing);
  }
};

// More than one report: the fault breaks several rules, and the schedule decides which comes first.
// Each of them has to appear on some seed.
template <class Pipeline>
struct Fault {
  const char* name;
  void (*kernel)(const typename Pipeline::Args);
  Shows shows;
  std::vector<Report> reports;
};

template <class Pipeline>
std::ostream& operator<<(std::ostream& out, const Fault<Pipeline>& fault) {
  return out << fault.name;
}

template <class Info>
std::string fault_name(const Info& info) {
  return info.param.name;
}

// "file.h:12"
inline bool is_line(const std::string& where) {
  const size_t colon = where.find(".h:");
  return colon != std::string::npos && colon + 3 < where.size() &&
         std::all_of(where.begin() + static_cast<std::ptrdiff_t>(colon) + 3, where.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

// What a report lacks of the parts that every report must have; empty = nothing.
inline std::string flaw(const Violation& violation, u64 seed) {
  if (violation.seed != seed ||
      std::string(violation.what()).find(fmt::format("seed {}", seed)) == std::string::npos)
    return "the seed";
  if (violation.missing.empty()) return "what is missing";
  const Rule rule = violation.rule;
  const bool two_sided = rule == Rule::kRace || rule == Rule::kProxyFence ||
                         rule == Rule::kRegisterInFlight || rule == Rule::kWgmmaFence ||
                         rule == Rule::kGlobalRace;
  if (violation.accesses.size() < (two_sided ? 2 : 1)) return "both accesses";
  for (const Access& access : violation.accesses) {
    if (access.what.empty()) return "the instruction";
    if (!is_line(access.where)) return "the line of " + access.what;
    if (access.who.find("warp") == std::string::npos &&
        access.who.find("of the grid") == std::string::npos &&
        access.who.find("earlier grid") == std::string::npos)
      return "who executes " + access.what;
  }
  return "";
}

template <class Pipeline>
void expect_correct(void (*kernel)(const typename Pipeline::Args),
                    u64 seeds = some_of(kit::thorough() ? 500 : 200)) {
  Pipeline pipeline;
  for (u64 seed = 0; seed < seeds; ++seed) {
    pipeline.device.options.seed = seed;
    pipeline.clear();
    const auto violation = pipeline.run(kernel);
    ASSERT_FALSE(violation) << violation->what();
    ASSERT_EQ(pipeline.wrong(), 0u) << "seed " << seed;
  }
}

template <class Pipeline>
void expect_fault(const Fault<Pipeline>& fault) {
  // Faults that depend on the path need all seeds, which only builds without a sanitizer run.
  constexpr u64 kAll = 64;
  const bool every = fault.shows == Shows::kEverySeed;
  const u64 seeds = every || kit::kSanitized ? some_of(kAll) : kAll;
  Pipeline pipeline;
  std::vector<u64> seen(fault.reports.size());
  u64 caught = 0, silent = 0;
  std::map<std::string, std::pair<u64, std::string>> others;  // by kind: how often, the first
  for (u64 seed = 0; seed < seeds; ++seed) {
    pipeline.device.options.seed = seed;
    pipeline.clear();
    const auto violation = pipeline.run(fault.kernel);
    if (!violation) {
      ++silent;
      if (fault.shows == Shows::kNumbers) {
        ASSERT_GT(pipeline.wrong(), 0u) << "seed " << seed;
      }
      continue;
    }
    ++caught;
    if (const std::string lacks = flaw(*violation, seed); !lacks.empty()) {
      auto& other = others["lacks " + lacks];
      if (other.first++ == 0) other.second = "lacks " + lacks + ": " + violation->what();
    }
    const auto fits = [&](const Report& report) { return report.fits(*violation); };
    const auto report = std::find_if(fault.reports.begin(), fault.reports.end(), fits);
    if (report != fault.reports.end()) {
      ++seen[static_cast<size_t>(report - fault.reports.begin())];
      continue;
    }
    auto& other = others[std::string(to_string(violation->rule)) + violation->missing];
    if (other.first++ == 0) other.second = violation->what();
  }
  for (const auto& [kind, other] : others)
    ADD_FAILURE() << "not the report to expect, on " << other.first << " seeds:\n" << other.second;
  // The first report is the one that names the fault; the others are its consequences, which
  // precede it on some schedules.
  if (!seen.empty() && seeds == kAll) {
    EXPECT_GT(seen[0], 0u) << "no seed shows " << to_string(fault.reports[0].rule) << ": "
                           << fault.reports[0].message;
  }
  if (fault.shows == Shows::kEverySeed) {
    EXPECT_EQ(silent, 0u) << "seeds without a report";
  }
  if (fault.shows == Shows::kWithin64 && seeds == kAll) {
    EXPECT_GT(caught, 0u) << "no report on any seed";
  }
  testing::Test::RecordProperty("caught", static_cast<int>(caught));
}

}  // namespace fa3::sim
