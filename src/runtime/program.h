// SPDX-License-Identifier: BSD-3-Clause
// program.h — a kernel by name, and the shape of its launch: what plans hold and runtimes run.
#pragma once

#include <string>

#include "device/types.h"
#include "runtime/header_set.h"

namespace fa3 {

// Architectures as NVRTC spells them.
inline constexpr const char* kHopperArch = "sm_90a";

// A kernel: NVRTC compiles `#include "header"` and the name expression for that architecture; the
// simulator looks the expression up among the programs that were compiled into it.
struct Program {
  std::string header;      // "device/sm90/fwd/fwd.cuh"
  std::string expression;  // "fa3::sm90::fwd<fa3::sm90::FwdConfig{…}>"
  std::string arch;        // kHopperArch
  // Another library's device code, which NVRTC sees along with this library's; null = none. Stays
  // in place as long as the process runs.
  const HeaderSet* headers = nullptr;

  bool operator==(const Program&) const = default;
};

struct LaunchShape {
  u32 grid[3] = {1, 1, 1};
  u32 threads = 0;     // per CTA, one-dimensional
  u32 smem_bytes = 0;  // dynamic shared memory per CTA
  u32 cluster = 1;     // CTAs along x per cluster
  bool pdl = false;    // may start before the previous grid has ended (griddepcontrol)
  // CTAs of different clusters communicate through global memory; the simulator has to know.
  bool interacting = false;
  // CTAs wait for each other: a GPU starts all at once (cooperative launch), and refuses a grid
  // that does not fit.
  bool waiting = false;
};

}  // namespace fa3
