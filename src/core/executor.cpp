// SPDX-License-Identifier: BSD-3-Clause
// executor.cpp — workers that pull task indices from one counter, on oneTBB or on the host's pool.
#include "core/executor.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>

#include "core/status.h"

namespace fa3 {
namespace {

// The state of one Executor::run, shared by its workers. Lives on the stack of the caller.
class Run {
 public:
  Run(int64_t tasks, int slots, Executor::Task task, Progress progress, fa3_progress_fn report,
      void* report_user)
      : tasks_(tasks),
        slots_(slots),
        task_(task),
        before_(progress.before),
        total_(progress.total > 0 ? progress.total : tasks),
        report_(report),
        report_user_(report_user) {}

  // A worker. Numbered by arrival, not by the pool's index: a pool that calls an index twice must
  // not share a slot.
  void work() noexcept {
    const int slot = next_slot_.fetch_add(1, std::memory_order_relaxed);
    if (slot < slots_) work_in(slot);
  }

  // Pulls tasks until none is left or the run has stopped. Nothing may be thrown through the host's
  // pool.
  void work_in(int slot) noexcept {
    try {
      while (!stop_.load(std::memory_order_relaxed)) {
        const int64_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
        if (index >= tasks_) return;
        task_(TaskContext(index, slot, stop_));
        report_one_more();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stop_ = true;
    }
  }

  // After all workers have returned. Throws on a failure, a cancellation, or a pool that left out
  // work.
  void finish() {
    if (error_) std::rethrow_exception(error_);
    if (cancelled_ != 0) {
      throw Error(FA3_CANCELLED,
                  fmt::format("run: the progress callback asked to stop, by returning {}, after {} "
                              "of {} units; the outputs are incomplete",
                              cancelled_, last_reported_, total_));
    }
    if (done_.load() != tasks_) {
      throw Error(FA3_INVALID_ARGUMENT,
                  fmt::format("context: parallel_for returned after {} of {} tasks; it must call "
                              "body for every index and return when all calls have returned",
                              done_.load(), tasks_));
    }
  }

 private:
  // Counts a finished task; calls the callback at most about a thousand times in a run, and always
  // at its end.
  void report_one_more() {
    const int64_t done = done_.fetch_add(1) + 1;
    if (report_ == nullptr) return;
    const int64_t step = std::max<int64_t>(1, tasks_ / 1000);
    if (done % step != 0 && done != tasks_) return;
    const std::lock_guard lock(mutex_);
    if (stop_ || before_ + done <= last_reported_) return;  // a later report overtook this one
    last_reported_ = before_ + done;
    cancelled_ = report_(report_user_, last_reported_, total_);
    if (cancelled_ != 0) stop_ = true;
  }

  const int64_t tasks_;
  const int slots_;
  const Executor::Task task_;
  const int64_t before_;
  const int64_t total_;
  const fa3_progress_fn report_;
  void* const report_user_;

  std::atomic<int64_t> next_task_{0};
  std::atomic<int> next_slot_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards what follows
  std::exception_ptr error_;
  int cancelled_ = 0;  // what the callback returned to stop the run
  int64_t last_reported_ = 0;
};

// oneTBB initialises itself once per process. If memory runs out meanwhile, it does not try again,
// and the next thread to use it waits for ever. So it is not used then: runs stay on the caller.
enum class Pool { kNew, kReady, kBroken };
std::mutex pool_mutex;
Pool pool = Pool::kNew;  // guarded by pool_mutex

bool pool_is_broken() {
  const std::lock_guard lock(pool_mutex);
  return pool == Pool::kBroken;
}

}  // namespace

// Up to oneTBB 2021.10 an arena that has run tasks keeps its memory for the rest of the process,
// some 3.6 kB for each thread. So arenas are lent to executors, which hand them on to later ones:
// there are as many as executors were alive at once.
struct Executor::Arena {
  tbb::task_arena arena;
  const int slots;
  const pid_t process = getpid();   // workers do not survive fork()
  std::atomic<bool> failed{false};  // something was thrown through it
  Arena* next = nullptr;            // in the list of those that nobody has

  static std::shared_ptr<Arena> lend(int threads);

 private:
  // One of the slots is the calling thread's. No thread starts before the first run.
  explicit Arena(int slots) : slots(slots) { arena.initialize(slots, 1); }
  static void take_back(Arena* arena) noexcept;

  static Arena* idle_;  // guarded by pool_mutex; never destroyed: contexts may outlive statics
};

Executor::Arena* Executor::Arena::idle_ = nullptr;

std::shared_ptr<Executor::Arena> Executor::Arena::lend(int threads) {
  std::unique_lock lock(pool_mutex);
  if (pool == Pool::kNew) pool = Pool::kBroken;
  // No more slots than oneTBB may use in this process: asked for more, it prints a warning.
  const size_t most =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  const int slots = static_cast<int>(std::min(static_cast<size_t>(threads), most));
  Arena* found = nullptr;
  for (Arena** at = &idle_; *at != nullptr; at = &(*at)->next) {
    if ((*at)->slots != slots || (*at)->process != getpid()) continue;
    found = *at;
    *at = found->next;
    break;
  }
  if (found == nullptr) found = new Arena(slots);
  pool = Pool::kReady;
  lock.unlock();  // take_back, if there is no memory for the pointer's count
  return std::shared_ptr<Arena>(found, &take_back);
}

void Executor::Arena::take_back(Arena* arena) noexcept {
  if (arena->failed || arena->process != getpid()) {
    delete arena;
    return;
  }
  const std::lock_guard lock(pool_mutex);
  arena->next = idle_;
  idle_ = arena;
}

Executor::Executor(int threads, fa3_parallel_for_fn parallel_for, void* parallel_for_user,
                   fa3_progress_fn progress, void* progress_user)
    : threads_(std::max(1, threads)),
      parallel_for_(parallel_for),
      parallel_for_user_(parallel_for_user),
      progress_(progress),
      progress_user_(progress_user) {
  if (parallel_for_ != nullptr || pool_is_broken()) return;
  // Now, where running out of memory is an error and not a slow run.
  arena_ = Arena::lend(threads_);
}

Executor::~Executor() = default;

Executor Executor::reporting(fa3_progress_fn progress, void* progress_user) const {
  Executor other = *this;
  other.progress_ = progress;
  other.progress_user_ = progress_user;
  return other;
}

void Executor::run(int64_t tasks, Task task, Progress progress) const {
  if (tasks <= 0) return;
  const int workers = static_cast<int>(std::min<int64_t>(tasks, threads_));
  Run run(tasks, workers, task, progress, progress_, progress_user_);
  if (workers == 1 || (parallel_for_ == nullptr && !arena_)) {
    run.work();
  } else if (parallel_for_ != nullptr) {
    const auto body = [](void* state, int64_t) { static_cast<Run*>(state)->work(); };
    parallel_for_(parallel_for_user_, workers, body, &run);
  } else {
    try {
      arena_->arena.execute([&] {
        tbb::parallel_for(
            0, workers, [&](int) { run.work(); }, tbb::simple_partitioner());
      });
    } catch (...) {  // oneTBB's own: it had no memory or no thread for some worker, and the others
      arena_->failed = true;  // have returned
      run.work_in(0);
    }
  }
  run.finish();
}

}  // namespace fa3
