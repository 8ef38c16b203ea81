// SPDX-License-Identifier: BSD-3-Clause
// executor.h — how a run spreads over threads: a parallel_for (oneTBB or the host's pool) and a progress report.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "fa3/fa3.h"

namespace fa3 {

// Runs task(index, slot) for every index in [0, tasks), each once. Workers take indices in increasing order, so a task
// may wait for one of a lower index. `slot` < threads() is unique among tasks that run at the same time: the index
// of a per-thread scratch area. Throws Error{FA3_CANCELLED} when the progress callback asks to stop, and rethrows the
// first exception of a task.
class Executor {
 public:
  Executor(int threads, fa3_parallel_for_fn parallel_for, void* parallel_for_user, fa3_progress_fn progress,
           void* progress_user);

  int threads() const { return threads_; }
  void run(int64_t tasks, const std::function<void(int64_t index, int slot)>& task) const;

  // True once the current run has failed or was cancelled: a task that waits for another one must ask.
  // (Per run; see Run in executor.cpp.)
 private:
  int threads_;
  fa3_parallel_for_fn parallel_for_;
  void* parallel_for_user_;
  fa3_progress_fn progress_;
  void* progress_user_;
};

}  // namespace fa3
