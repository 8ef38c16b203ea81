// SPDX-License-Identifier: BSD-3-Clause
// violation.h — what the simulator throws when a program breaks a rule of the hardware: the rule,
// the object by its name in the kernel, both accesses with their lines, and what is missing.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "device/types.h"

namespace fa3::sim {

// The check that failed. Names as to_string() gives them are stable; tests and tools match them.
enum class Rule {
  kRace,              // two accesses of shared memory that nothing orders
  kProxyFence,        // generic and async accesses without fence.proxy.async between them
  kRegisterInFlight,  // accumulator or A registers touched while a wgmma owns them
  kWgmmaFence,        // registers handed to wgmma without wgmma.fence
  kWgmma,             // operands, groups or warpgroup of a wgmma
  kDescriptor,        // shared-memory matrix descriptor
  kMbarrier,          // counts, phases, bytes, visibility of an mbarrier
  kNamedBarrier,      // bar.sync / bar.arrive
  kCluster,           // cluster barrier, memory of a CTA that is not there
  kDivergence,        // a collective that lanes do not execute together
  kDeadlock,          // nothing can run
  kLivelock,          // threads poll, and nothing else can happen
  kUninitialized,     // shared memory or an accumulator never written
  kOutOfBounds,       // outside a named member, an allocation or a tensor
  kAlignment,
  kRegisters,   // setmaxnreg
  kTma,         // coordinates, boxes, maps
  kBulkGroup,   // bulk groups left open
  kGlobalRace,  // global memory: accesses of different threads that nothing orders
  kLaunch,      // griddepcontrol, use of what the launch did not ask for
  kTrap,        // the program's own trap
};
const char* to_string(Rule rule);

// One side of a violation: an instruction of some agent at some line of the kernel.
struct Access {
  std::string what;   // "tma_load"
  std::string who;    // "warp 4 lane 0 (thread 128)", "wgmma of warpgroup 1"
  std::string where;  // "gemm.cuh:71"
};

class Violation : public std::exception {
 public:
  Rule rule;
  std::string object;   // "k_full[1]"; may be empty
  std::string message;  // one sentence with both sides
  std::string missing;  // one sentence on what would make it right
  std::vector<Access> accesses;
  u32 block[3] = {};
  u64 seed = 0;

  Violation(Rule rule, std::string object, std::string message, std::string missing,
            std::vector<Access> accesses = {});
  // Fills the text of what(): call after block and seed are known.
  void finish();
  const char* what() const noexcept override { return text_.c_str(); }
  std::string json() const;

 private:
  std::string text_;
};

}  // namespace fa3::sim
