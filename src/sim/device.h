// SPDX-License-Identifier: BSD-3-Clause
// device.h — the simulated Hopper GPU as its user sees it: registered memory, tensor maps, launches
// under a seed. A launch returns when the grid has ended and throws a Violation when it broke a
// rule.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/gpu_runtime.h"
#include "sim/global_memory.h"
#include "sim/trace.h"
#include "sim/violation.h"

namespace fa3::sim {

// When asynchronous operations take effect: at once, as late as nothing else can run, or after a
// random number of steps. kDrawn leaves the choice to the seed.
enum class Completion : u8 { kDrawn, kEarly, kLate, kRandom };

struct Options {
  u64 seed = 0;     // every choice of scheduling follows from it
  u32 workers = 1;  // OS threads for clusters that do not interact; 0 = one per core
  u32 sms = 4;      // multiprocessors; CTAs wait for a free one
  Completion completion = Completion::kDrawn;
  bool elect_lane_0 =
      false;                // elect.sync: lane 0 always (what hardware was seen to do), else drawn
  bool exact_sums = false;  // wgmma of 16-bit types bit for bit as a GPU, some 20 times slower
  Trace* trace = nullptr;   // records events when set; implies one worker
  // Mutation tests: called at every wait, arrival, fence and barrier of a thread; true leaves that
  // one out. `op` is its name in reports. Called from all workers.
  std::function<bool(const char* op, Where where)> omit;
  // Threads run in the order of their clocks, and asynchronous work takes effect after as many as
  // sim/timing.h says, instead of by the seed: for pictures.
  bool timed = false;
};

// What a launch did.
struct Stats {
  u64 steps = 0;   // scheduling decisions
  u64 events = 0;  // asynchronous operations that took effect
  u64 wgmmas = 0;
  u64 bank_conflicts = 0;  // extra shared-memory cycles of ldmatrix and stmatrix
};

// A kernel compiled for the host; `args` is its argument struct.
using Kernel = std::function<void(const void* args)>;

class Device {
 public:
  explicit Device(Options options = {}) : options(options) {}

  Options options;
  GlobalMemory memory;

  // Throws Violation; Error for a shape that breaks a limit.
  Stats launch(const Kernel& kernel, const LaunchShape& shape, const void* args);
  // Orders everything that grids did so far before all later grids.
  void synchronize() { memory.synchronize(launches_); }

 private:
  u64 launches_ = 0;
};

}  // namespace fa3::sim
