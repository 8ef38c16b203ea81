// SPDX-License-Identifier: BSD-3-Clause
// violation.cpp — parses the simulator's report line by line.
#include "violation.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

// "  tma_load at attention.cuh:74 by the copy engine"; null for another line.
Json access(const std::string& line) {
  const size_t at = line.find(" at "),
               by = line.find(" by ", at == std::string::npos ? at : at + 4);
  if (line.compare(0, 2, "  ") != 0 || by == std::string::npos) return nullptr;
  return {{"what", line.substr(2, at - 2)},
          {"where", line.substr(at + 4, by - at - 4)},
          {"who", line.substr(by + 4)}};
}

}  // namespace

Json violation_json(const std::string& text) {
  const size_t last = text.rfind("\n  block ("), colon = text.find(": ");
  std::array<unsigned, 3> block{};
  unsigned long long seed = 0;
  if (last == std::string::npos || colon == std::string::npos ||
      std::sscanf(text.c_str() + last, "\n  block (%u, %u, %u), seed %llu", &block[0], &block[1],
                  &block[2], &seed) != 4)
    return nullptr;
  Json j{{"rule", text.substr(0, colon)}, {"message", ""}, {"accesses", Json::array()}};
  j["missing"] = "";
  std::string message;
  std::istringstream lines(text.substr(colon + 2, last - colon - 2));
  const std::string missing = "  missing: ";
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, missing.size(), missing) == 0)
      j["missing"] = line.substr(missing.size());
    else if (const Json side = access(line); !side.is_null())
      j["accesses"].push_back(side);
    else
      message += (message.empty() ? "" : "\n") + line;
  }
  j["message"] = message;
  j["block"] = block;
  j["seed"] = seed;
  return j;
}

}  // namespace fa3::cli
