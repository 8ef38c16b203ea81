// SPDX-License-Identifier: BSD-3-Clause
// state.h — the simulated machine while it runs: threads, warps, warpgroups, CTAs and clusters. A
// cluster belongs to one OS thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/ptx/twin.h"
#include "sim/clock.h"
#include "sim/fiber.h"
#include "sim/shadow.h"
#include "sim/site.h"
#include "sim/timing.h"
#include "sim/violation.h"

namespace fa3::sim {

constexpr u32 kWarp = 32;
constexpr u32 kWarpgroup = 128;
constexpr u32 kSmemWindow = 1024;  // shared memory starts here in the window: no address is 0
constexpr u32 kNamedBarriers = 16;
constexpr u32 kTmaSlots = 64;   // asynchronous copies that a CTA can have in flight
constexpr u32 kRankShift = 24;  // a cluster address holds rank + 1 above this bit

struct Cluster;
struct Worker;
struct Warp;
struct Warpgroup;

// What a thread is blocked in, for deadlock reports.
struct Waiting {
  enum class On : u8 {
    kNothing,
    kMbarrier,
    kNamedBarrier,
    kCollective,
    kWgmma,
    kBulk,
    kCluster,
    kRegisters
  };
  On on = On::kNothing;
  u32 id = 0;      // address of the mbarrier, number of the named barrier, groups pending …
  u32 detail = 0;  // parity, threads, registers
};

// A bulk operation of a thread: which slot reads and writes for it.
struct BulkOp {
  u32 slot_agent;
  Tick read_tick, write_tick;
  bool read_done = false, write_done = false;
  bool waited = false;  // by its thread, at least for the read
};

// A cp.async that has not been waited for.
struct PendingCopy {
  u32 to;  // offset in shared memory
  u32 bytes;
  u8 data[16];
  u16 site;
  std::shared_ptr<bool> landed;  // set once an mbarrier waits for it, too,
  Epoch tracked;                 // from the first one on: then it is ordered for all who wait
};

struct Thread {
  Fiber fiber;
  twin::Ids ids{};
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  u32 lane = 0;
  u32 agent = 0;
  Tick* clock = nullptr;
  u64 version = 0;                  // grows whenever the clock learns something
  u64 wgmma_fences = 0;             // executed
  std::vector<Tick> shared_fences;  // ticks of fence.proxy.async
  // The clocks of the last of them, where copies by cp.async are fenced by those who waited.
  static constexpr size_t kFenceViews = 8;
  std::vector<std::vector<Tick>> fence_views;
  Where where{};  // of the last primitive
  const char* op = "start";
  Waiting waiting;
  Where lost_registers{};  // a wgmma whose registers went out of scope in flight
  bool exited = false, wake_spurious = false;
  u64 time = 0;         // by the clock: when it runs next
  u64 exp_batches = 0;  // of its warp's that it took part in

  u64 polls = 0;                                // try_waits that found their phase open
  u64 cluster_arrived = 0, cluster_waited = 0;  // generation after the one arrived in / waited for
  u64 wgmma_posted = 0;                         // wgmmas issued; also the number of the next
  u64 wgmma_waited = 0;                         // wgmmas known to be complete
  u64 wgmma_groups = 0;                         // committed
  u64 wgmma_joined = ~0ull;                     // version when the warp last took this clock

  std::vector<std::shared_ptr<BulkOp>> bulk_open;
  std::vector<std::vector<std::shared_ptr<BulkOp>>>
      bulk_groups;  // oldest first, not fully waited for
  std::vector<PendingCopy> copies_open;
  std::vector<std::vector<PendingCopy>> copy_groups;

  // Global memory: clocks of clusters that relaxed accesses saw and the next fence acquires, and
  // that the last fence released.
  std::map<u64, std::vector<Tick>> release_ready, acquire_ready;
  bool has_release = false;

  Tick& tick() { return clock[agent]; }
  Epoch epoch() const { return {agent, clock[agent]}; }
};

// A warp instruction that waits for its lanes.
struct Collective {
  const char* op = nullptr;
  Where where{};
  u32 mask = 0, arrived = 0;
  u64 key = 0;  // what all lanes must agree on, other than op
  void* operands[kWarp] = {};
};

struct Warp {
  Cta* cta = nullptr;
  u32 index = 0;              // in the CTA
  u32 slot = 0;               // in the worker's table of resident warps
  Thread* threads = nullptr;  // 32 of them
  u32 lanes = 0;              // that exist
  u32 exited = 0;             // that have ended
  u32 priority = 0;
  std::vector<Collective> pending;
  u32 registers = 0;                    // per thread
  std::vector<u32> register_history;    // values of setmaxnreg so far
  u64 exp_batches = 0, exps_until = 0;  // by the clock: exponentials handed to the unit
};

// One wgmma of a warpgroup: posted by 128 lanes, then executed at a moment of the scheduler's
// choice.
struct WgmmaOp {
  const WgmmaInstruction* instruction = nullptr;
  u64 a_desc = 0, b_desc = 0;
  bool accumulate = false;
  Where where{};
  u64 group = 0;
  u64 started = 0;  // step, for the event log
  u32 posted = 0, waited = 0;
  void* d[kWarpgroup];
  twin::RegisterState* d_state[kWarpgroup];
  twin::RegisterState* a_state[kWarpgroup];
  u32 a[kWarpgroup][4];
  std::shared_ptr<const std::vector<Tick>> known;  // clocks of the four warps at the start
};

struct Warpgroup {
  Cta* cta = nullptr;
  u32 index = 0;
  u32 agent = 0;
  std::deque<WgmmaOp> ops;  // ops[i] is number first + i
  u64 first = 0;
  u64 ready = 0;  // ops below this number have been posted by all lanes
  u64 executed = 0;
  bool scheduled = false;    // an event for the next one is pending
  std::vector<Tick> joined;  // four rows: what each warp knew when it last posted
  u64 joined_version = 0;
  std::shared_ptr<const std::vector<Tick>> known;
  u64 known_version = ~0ull;
  std::vector<Thread*> waiters;
};

struct Mbarrier {
  u32 offset = 0;
  bool live = false;
  bool fenced = false;    // fence.mbarrier_init by the thread that initialised it
  u64 visible_after = 0;  // then: the cluster barrier it arrived at next, relaxed or not
  Epoch initialised;
  Where init_at{};
  u32 expected = 0, pending = 0;
  i64 tx = 0;
  u64 phase = 0;        // phases completed
  u64 observed = 0;     // phases that some waiter has seen complete
  u64 phase_bytes = 0;  // expected in this phase
  u64 delivered = 0;    // delivered in this phase
  bool last_had_bytes = false;
  std::vector<Tick> collecting, completed;  // clocks of arrivals; of the completed phases
  std::vector<i64> last_seen;  // per thread: the last phase it saw complete; −2 = none
  std::vector<Thread*> waiters;
  Where last_where{};
  const char* last_op = "";
  u32 last_agent = 0;
};

struct NamedBarrier {
  u32 threads = 0;  // that this generation waits for; 0 = none has arrived yet
  u32 arrived = 0;
  u64 generation = 0;
  u32 warps_arrived = 0;  // bit mask
  Where first_where{};
  u32 first_warp = 0;
  std::vector<Tick> collecting, completed;
  std::vector<Thread*> waiters;
};

// A named piece of shared memory.
struct Member {
  u32 offset, bytes;
  std::string name;
};

struct Cta {
  explicit Cta(Cluster& cluster) : cluster(cluster), shadow(*this) {}
  Cta(const Cta&) = delete;
  Cta& operator=(const Cta&) = delete;

  Cluster& cluster;
  u32 rank = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::unique_ptr<StackChunk> stacks;
  std::unique_ptr<char, void (*)(void*)> smem{nullptr, nullptr};
  u32 smem_bytes = 0;              // that the launch asked for
  bool described = false;          // smem_base was called
  bool copies_by_threads = false;  // cp_async was called
  std::vector<Member> members;
  Shadow shadow;
  std::map<u32, Mbarrier> mbarriers;         // by offset
  std::map<u32, std::vector<Tick>> atomics;  // clocks that shared atomics pass on, by offset
  NamedBarrier barriers[kNamedBarriers];
  u32 first_slot = 0;  // agent of its first TMA slot
  u32 next_slot = 0;
  std::vector<Tick> slot_ticks;
  std::vector<u32> slot_issuers;  // the thread whose copy last took the slot
  u32 live_threads = 0;
  u32 entry_registers = 0;  // per thread, at launch
  u32 register_pool = 0;    // registers of one thread of a warp, summed over warps, that are free
  std::vector<Thread*> register_waiters;
  Sm sm;
  bool over() const { return live_threads == 0; }

  u32 number() const;  // in the grid
  // The member that an offset in shared memory lies in, or null.
  const Member* member(u32 offset) const;
  // "k[1]+512" for an offset in shared memory.
  std::string name(u32 offset) const;
};

// What a thread learned of other clusters by an acquire: clocks by number in the grid. Threads that
// are ordered after it know that too.
struct News {
  Epoch learned;
  std::map<u64, std::vector<Tick>> clocks;
};

struct Cluster {
  Worker* worker = nullptr;
  u64 index = 0;  // in the grid
  u64 launch = 0;
  u32 block[3] = {};  // of its first CTA
  u32 width = 0;      // of a clock
  std::vector<std::unique_ptr<Cta>> ctas;
  std::unique_ptr<Tick, void (*)(void*)> clocks{nullptr, nullptr};
  u32 agents = 0;
  // The cluster barrier.
  u64 generation = 0;
  u32 arrived = 0;
  std::vector<Tick> collecting, completed;
  std::vector<Thread*> waiters;
  std::vector<News> news;
  std::vector<Epoch> pdl_waits;  // what is ordered after one of them is after earlier grids

  std::string agent_name(u32 agent) const;
  // Registered threads of the cluster that have not ended.
  u32 live() const;
  Thread& thread(u32 agent);
};

}  // namespace fa3::sim
