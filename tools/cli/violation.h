// SPDX-License-Identifier: BSD-3-Clause
// violation.h — the simulator's report of a rule that a kernel broke, for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fa3::cli {

// From the text of docs/guide/simulator.md the object {rule, message, accesses (each {what, where,
// who}), missing, block, seed}; null when the text is not such a report.
nlohmann::ordered_json violation_json(const std::string& text);

}  // namespace fa3::cli
