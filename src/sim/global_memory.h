// SPDX-License-Identifier: BSD-3-Clause
// global_memory.h — allocations that kernels may access, and the accesses so far: bounds, races
// between threads that nothing orders, results of a grid read before it has ended.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/clock.h"

namespace fa3::sim {

struct Thread;
struct Cluster;

// What a thread knows of clusters other than its own: their clocks, by number in the grid.
using Foreign = std::map<u64, std::vector<Tick>>;

// What an agent of the cluster with that clock knows of others.
Foreign known_to(const Cluster& cluster, const Tick* view);

// The agent that accesses global memory, and its clock. The view need only outlive the call.
struct GlobalAccessor {
  const Cluster* cluster;
  const Tick* view;
  Epoch epoch;
  u16 site;
  bool async;   // through the async proxy
  bool atomic;  // atomics and strong accesses do not race with each other
};

class GlobalMemory {
 public:
  // `read_only`: kernels may not write it, and reads are not remembered.
  void add(std::string name, void* base, u64 bytes, bool read_only = false);
  void remove(const void* base);
  // Orders everything that grids did so far before all later grids.
  void synchronize(u64 launches) { settled_ = launches; }

  struct Buffer;
  // The buffer that holds [address, address + bytes); a Violation (out-of-bounds) when none does.
  Buffer& find(const GlobalAccessor& by, const void* address, u64 bytes, bool writes);
  // "in+12" for an address in a buffer, else nothing.
  std::string name_of(const void* address) const;
  void read(const GlobalAccessor& by, const void* address, u64 bytes);
  void write(const GlobalAccessor& by, const void* address, u64 bytes);

  // fence.proxy.async by a thread, for its accesses of global memory so far.
  void fence(const Cluster& cluster, Epoch at);
  // Release publishes a thread's clocks at an address; acquire reads them.
  void release(const Thread& thread, const Foreign& foreign, const Tick* view, const void* address);
  // What was published there in this launch, clusters by number.
  Foreign acquire(const Cluster& cluster, const void* address);

  struct Buffer {
    std::string name;
    u64 base = 0, bytes = 0;
    bool read_only = false;
    std::mutex mutex;
    struct Mark {  // one access
      u32 cluster = 0;
      Tick tick = 0;  // 0 = none
      u16 agent = 0, site = 0, launch = 0;
      u16 generic : 1, atomic : 1;
    };
    struct Cell {
      Mark write, read;
      u32 crowd = 0;  // more readers: crowds[crowd − 1]
      u32 split = 0;  // parts[split − 1] hold 16 cells of one byte, or 4 of four
    };
    std::vector<Cell> cells;  // per 16 bytes, from the 16-byte boundary at or below base
    std::vector<std::vector<Mark>> crowds;
    std::vector<std::vector<Cell>> parts;
  };

 private:
  template <class Act>
  void for_cells(Buffer& buffer, u64 address, u64 bytes, const Act& act);
  void check(const GlobalAccessor& by, const Buffer& buffer, const Buffer::Mark& mark, bool writes,
             bool earlier_writes, u64 address) const;

  std::map<u64, std::unique_ptr<Buffer>> buffers_;
  bool fenced(const GlobalAccessor& by, const Buffer::Mark& mark) const;

  // What an earlier launch left: its clusters have the same numbers, and other clocks.
  void forget_earlier(u64 launch);

  mutable std::mutex sync_mutex_;  // of all that follows, of one launch
  u64 sync_launch_ = 0;
  std::map<std::pair<u64, u32>, std::vector<Tick>> fences_;  // by cluster and agent
  std::unordered_map<const void*, Foreign> published_;
  u64 settled_ = 0;
};

}  // namespace fa3::sim
