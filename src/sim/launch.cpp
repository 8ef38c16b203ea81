// SPDX-License-Identifier: BSD-3-Clause
// launch.cpp — a launch: limits, then clusters on one or several OS threads.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "core/status.h"
#include "runtime/launch_shape.h"
#include "sim/worker.h"

namespace fa3::sim {
namespace {

constexpr u32 kThreadsPerSm = 2048;
constexpr u32 kSmemPerSm = 233472;  // 228 KB; a CTA takes 1 KB more than it asks for

u32 ctas_per_sm(const LaunchShape& shape) {
  const u32 by_threads = kThreadsPerSm / shape.threads;
  const u32 by_smem = kSmemPerSm / (shape.smem_bytes + 1024);
  return std::clamp(std::min(by_threads, by_smem), 1u, 32u);
}

void add(Stats& to, const Stats& from) {
  to.steps += from.steps;
  to.events += from.events;
  to.wgmmas += from.wgmmas;
  to.bank_conflicts += from.bank_conflicts;
}

}  // namespace

Stats Device::launch(const Kernel& kernel, const LaunchShape& shape, const void* args) {
  if (const Status status = check_launch({"", "kernel", ""}, shape, 1); !status.ok())
    throw Error(status.code, status.message);
  launches_++;
  if (!shape.pdl) memory.synchronize(launches_ - 1);
  const u64 ctas = u64{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  const Grid grid{kernel, shape, args, *this, launches_, ctas / shape.cluster};
  Stats total;

  if (shape.interacting) {
    u64 next = 0;
    Worker worker(grid, options.seed);
    const u32 resident = std::max(1u, options.sms * ctas_per_sm(shape) / shape.cluster);
    worker.run(
        [&](u64& index) {
          index = next;
          return next++ < grid.clusters;
        },
        std::max(resident, 2u));
    return worker.stats;
  }

  u32 workers =
      options.workers == 0 ? std::max(1u, std::thread::hardware_concurrency()) : options.workers;
  if (options.trace != nullptr) workers = 1;
  workers = static_cast<u32>(std::min<u64>(workers, grid.clusters));
  std::atomic<u64> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  u64 failed = ~0ull;  // the cluster whose error is reported: the lowest, so that a seed replays
  const auto work = [&] {
    Worker worker(grid, options.seed);
    u64 mine = 0;
    try {
      worker.run(
          [&](u64& index) {
            index = mine = next++;
            return index < grid.clusters;
          },
          1);
    } catch (...) {
      const std::lock_guard lock(mutex);
      next = grid.clusters;
      if (mine < failed) {
        failed = mine;
        error = std::current_exception();
      }
    }
    const std::lock_guard lock(mutex);
    add(total, worker.stats);
  };
  std::vector<std::thread> threads;
  try {
    for (u32 i = 1; i < workers; i++) threads.emplace_back(work);
  } catch (const std::exception&) {  // no more to be had: those that there are do all of it
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return total;
}

}  // namespace fa3::sim
