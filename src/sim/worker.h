// SPDX-License-Identifier: BSD-3-Clause
// worker.h — one OS thread of the simulator: resident clusters, the scheduler that picks the next
// fiber, and asynchronous events that take effect between issue and wait.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "sim/device.h"
#include "sim/random.h"
#include "sim/state.h"

namespace fa3::sim {

// How threads are picked and when asynchronous work takes effect; drawn from the seed, since no
// single policy finds every fault that depends on the path.
struct Policy {
  enum class Pick : u8 {
    kRandom,
    kSticky,
    kPriority,  // random priorities of warps (PCT)
    kClock      // the thread with the earliest time: Options::timed
  };
  Pick pick = Pick::kRandom;
  u32 leave_in = 16;  // sticky: switches warps once in so many picks
  u32 yield_in = 0;   // a primitive yields once in so many; 0 = never
  Completion completion = Completion::kRandom;
  u32 delay = 64;  // kRandom: mean steps until an event

  static Policy draw(Random& random, const Options& options);
};

struct Grid {
  const Kernel& kernel;
  const LaunchShape& shape;
  const void* args;
  Device& device;
  u64 launch;    // number of the launch
  u64 clusters;  // in the grid
};

// Does a primitive let others run before it takes effect?
enum class Yields : u8 {
  kNever,      // it only posts: what it starts runs at a drawn moment anyway
  kSometimes,  // as the policy says
  kMeeting,    // the same; lanes of a warp meet, which a loop that polls may do, too
  kPolling,    // always: it may be waiting for them
};

struct Worker {
  Worker(const Grid& grid, u64 seed) : grid(grid), random(seed) {}

  const Grid& grid;
  Random random;
  Policy policy;
  Stats stats{};
  Fiber main;
  Thread* current = nullptr;
  std::exception_ptr error;
  u64 step = 0;  // scheduling decisions; by the clock, the time

  // Runs clusters of the grid: `next` hands out their numbers, `resident` at a time.
  void run(const std::function<bool(u64& index)>& next, u32 resident);

  // ---- for primitives, on a fiber ----
  // The start of every primitive.
  Thread& enter(const char* op, Where where, Yields yields);
  // Suspends the current thread until wake(); the caller re-checks its condition.
  void block(Thread& thread, Waiting waiting);
  void wake(Thread& thread);
  void sleep(Thread& thread);  // not runnable until wake()
  void wake_all(std::vector<Thread*>& threads);
  void yield(Thread& thread);
  // Runs `event` when the scheduler chooses; by the clock, after `clocks`.
  void later(Cluster& cluster, std::function<void()> event, u64 clocks = kCopyLatency);
  bool timed() const { return policy.pick == Policy::Pick::kClock; }
  void finish(Thread& thread);  // the thread's kernel returned

 private:
  struct Event {
    u64 due;
    Cluster* cluster;
    std::function<void()> run;
  };

  void start_cluster(u64 index);
  void end_cluster(Cluster& cluster);
  Thread* pick();
  Thread* pick_in(u32 slot);
  Thread* pick_by_clock();
  void spend(Thread& thread);
  void fire(size_t index);
  void fire_due();
  bool wake_pollers();
  void switch_away(Thread& from, bool finished);
  [[noreturn]] void deadlock(bool polling);
  void log_wait(const Thread& thread, u64 since);
  void check_lost(Thread& thread);
  void check_thread_end(Thread& thread);
  static void thread_main(void* argument);

  std::vector<std::unique_ptr<Cluster>> resident_;
  std::vector<Warp*> warps_;         // by slot
  std::vector<u32> runnable_;        // lanes, by slot
  std::vector<u64> runnable_slots_;  // bit set
  u32 last_slot_ = 0;
  bool fair_ = false;  // the next pick ignores the policy
  std::vector<Event> events_;
  u64 next_due_ = ~0ull;
  u64 idle_ = 0;  // polls since a primitive did more than polling and meeting
  u64 progress_ = 0;
  u64 stuck_progress_ = ~0ull;
  u32 ended_ = 0;  // clusters that ended and wait for end_cluster
};

// The thread that runs on this OS thread now; an Error outside of kernels.
Thread& self();
Thread* running();  // null outside of kernels, and while a failed run is taken down
// The start of every primitive, for that thread.
Thread& enter(const char* op, Where where, Yields yields = Yields::kSometimes);
// Is this wait, arrival, fence or barrier to be left out (Options::omit)? Call before enter.
bool omitted(const char* op, Where where);

// Clusters are expensive to build; these make one ready for use and take it down.
void reset_cluster(Cluster& cluster, Worker& worker, u64 index);
void check_cluster_end(Cluster& cluster);
void complete_cluster_barrier(Cluster& cluster);

// ---- failing ----
[[noreturn]] void fail(const Cta& cta, Rule rule, std::string object, std::string message,
                       std::string missing, std::vector<Access> accesses = {});
Access access_of(const Thread& thread, const char* op, Where where);
Access access_of(const Cluster& cluster, u32 agent, u16 site);
std::string thread_name(const Thread& thread);

}  // namespace fa3::sim
