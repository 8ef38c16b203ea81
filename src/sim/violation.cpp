// SPDX-License-Identifier: BSD-3-Clause
// violation.cpp — a violation as text and as JSON.
#include "sim/violation.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace fa3::sim {

const char* to_string(Rule rule) {
  switch (rule) {
    case Rule::kRace:
      return "race";
    case Rule::kProxyFence:
      return "proxy-fence";
    case Rule::kRegisterInFlight:
      return "register-in-flight";
    case Rule::kWgmmaFence:
      return "wgmma-fence";
    case Rule::kWgmma:
      return "wgmma";
    case Rule::kDescriptor:
      return "descriptor";
    case Rule::kMbarrier:
      return "mbarrier";
    case Rule::kNamedBarrier:
      return "named-barrier";
    case Rule::kCluster:
      return "cluster";
    case Rule::kDivergence:
      return "divergence";
    case Rule::kDeadlock:
      return "deadlock";
    case Rule::kLivelock:
      return "livelock";
    case Rule::kUninitialized:
      return "uninitialized";
    case Rule::kOutOfBounds:
      return "out-of-bounds";
    case Rule::kAlignment:
      return "alignment";
    case Rule::kRegisters:
      return "registers";
    case Rule::kTma:
      return "tma";
    case Rule::kBulkGroup:
      return "bulk-group";
    case Rule::kGlobalRace:
      return "global-race";
    case Rule::kLaunch:
      return "launch";
    case Rule::kTrap:
      return "trap";
  }
  return "?";
}

Violation::Violation(Rule rule, std::string object, std::string message, std::string missing,
                     std::vector<Access> accesses)
    : rule(rule),
      object(std::move(object)),
      message(std::move(message)),
      missing(std::move(missing)),
      accesses(std::move(accesses)) {
  finish();
}

void Violation::finish() {
  text_ = fmt::format("{}: {}", to_string(rule), message);
  for (const Access& access : accesses)
    text_ += fmt::format("\n  {} at {} by {}", access.what, access.where, access.who);
  if (!missing.empty()) text_ += "\n  missing: " + missing;
  text_ += fmt::format("\n  block ({}, {}, {}), seed {}", block[0], block[1], block[2], seed);
}

std::string Violation::json() const {
  nlohmann::ordered_json out{{"rule", to_string(rule)},
                             {"object", object},
                             {"message", message},
                             {"missing", missing},
                             {"accesses", nlohmann::ordered_json::array()},
                             {"block", {block[0], block[1], block[2]}},
                             {"seed", seed}};
  for (const Access& access : accesses)
    out["accesses"].push_back(
        {{"what", access.what}, {"who", access.who}, {"where", access.where}});
  return out.dump();
}

}  // namespace fa3::sim
