// SPDX-License-Identifier: BSD-3-Clause
// json_text.h — JSON as indented text, and sizes in units that people read.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fa3::cli {

// "48 KiB", "1.5 MiB".
std::string size_text(int64_t bytes);

// One `key  value` line per leaf, nested objects indented, small ones on a line. Keys that end in
// _bytes get their unit.
std::string json_text(const nlohmann::ordered_json& value, int indent = 0);

// As JSON of one line, or indented. A byte that is not UTF-8, as paths may have, becomes U+FFFD.
std::string dump(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace fa3::cli
