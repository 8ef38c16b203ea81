// SPDX-License-Identifier: BSD-3-Clause
// executor.h — how a run spreads over threads: a parallel_for (oneTBB or the host's pool) and a
// progress report.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/function_ref.h"
#include "fa3/fa3.h"

namespace fa3 {

// What a task is given.
class TaskContext {
 public:
  TaskContext(int64_t index, int slot, const std::atomic<bool>& stop)
      : index(index), slot(slot), stop_(stop) {}

  const int64_t index;  // of the task, in [0, tasks)
  const int slot;       // of a per-thread scratch area, < Executor::threads(): unique among the
                        // tasks that run at the same time

  // True once another task failed or the run was cancelled. A task that waits for another one must
  // poll this and return: the other one may never finish. The outputs do not count any more.
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>& stop_;
};

// Where the tasks of one Executor::run stand in the progress of a call that runs several times.
struct Progress {
  int64_t before = 0;  // units done by earlier runs of the call
  int64_t total = 0;   // units of all runs of the call; 0 = the tasks of this run
};

// Runs task(context) once for every index in [0, tasks). Workers take indices in increasing order,
// so a task may wait for one of a lower index, whatever the number of threads. Everything that
// tasks wrote is visible when run() returns.
class Executor {
 public:
  using Task = FunctionRef<void(const TaskContext&)>;

  // parallel_for NULL = oneTBB; progress NULL = none. threads ≥ 1.
  explicit Executor(int threads, fa3_parallel_for_fn parallel_for = nullptr,
                    void* parallel_for_user = nullptr, fa3_progress_fn progress = nullptr,
                    void* progress_user = nullptr);
  ~Executor();
  Executor& operator=(const Executor&) = delete;

  // The same threads, with another progress callback.
  Executor reporting(fa3_progress_fn progress, void* progress_user) const;
  // The call's progress as the callback has it: of nothing where there is none.
  int report(int64_t done, int64_t total) const {
    return progress_ == nullptr ? 0 : progress_(progress_user_, done, total);
  }

  int threads() const { return threads_; }

  // May be called from many threads at once. Throws Error{FA3_CANCELLED} when the progress callback
  // asks to stop, and the first exception of a task. Allocates nothing itself; where oneTBB runs
  // out of memory or threads, the calling thread does the tasks.
  void run(int64_t tasks, Task task, Progress progress = {}) const;

 private:
  struct Arena;  // oneTBB's, kept out of this header

  Executor(const Executor&) = default;

  int threads_;
  fa3_parallel_for_fn parallel_for_;
  void* parallel_for_user_;
  fa3_progress_fn progress_;
  void* progress_user_;
  std::shared_ptr<Arena> arena_;
};

}  // namespace fa3
