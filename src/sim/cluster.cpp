// SPDX-License-Identifier: BSD-3-Clause
// cluster.cpp — building CTAs, the checks at their end, and the cluster barrier.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/status.h"
#include "sim/worker.h"

namespace fa3::sim {
namespace {

constexpr u32 div_up(u32 a, u32 b) { return (a + b - 1) / b; }

template <class T>
std::unique_ptr<T, void (*)(void*)> allocate(size_t count, size_t alignment) {
  const size_t bytes = (count * sizeof(T) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, std::max(bytes, alignment));
  if (memory == nullptr)
    throw Error(FA3_OUT_OF_MEMORY, fmt::format("simulator: no memory for {} bytes", bytes));
  return {static_cast<T*>(memory), std::free};
}

// Registers per thread at launch: the file divided among threads, by steps of 8, at most 255 (which
// is allocated as 256).
u32 entry_registers(u32 threads) {
  const u32 share = 65536 / (div_up(threads, kWarpgroup) * kWarpgroup) / 8 * 8;
  return std::min(share, 256u);
}

void reset_cta(Cta& cta, const LaunchShape& shape, u64 launch_block) {
  Cluster& cluster = cta.cluster;
  const u32 warps = div_up(shape.threads, kWarp);
  const u32 groups = div_up(shape.threads, kWarpgroup);
  const bool same = cta.threads.size() == shape.threads && cta.smem_bytes == shape.smem_bytes;
  if (!same) {
    cta.stacks = std::make_unique<StackChunk>(shape.threads);
    cta.smem = allocate<char>(shape.smem_bytes, 1024);
  }
  cta.smem_bytes = shape.smem_bytes;
  std::memset(cta.smem.get(), 0xFF, shape.smem_bytes);  // a NaN in every type of ours
  cta.shadow.reset(shape.smem_bytes);
  cta.described = cta.copies_by_threads = false;
  cta.members.clear();
  cta.mbarriers.clear();
  cta.atomics.clear();
  for (NamedBarrier& barrier : cta.barriers) barrier = {};
  cta.live_threads = shape.threads;
  cta.register_pool = 0;
  cta.register_waiters.clear();
  cta.next_slot = 0;
  cta.slot_ticks.assign(kTmaSlots, 0);
  cta.slot_issuers.assign(kTmaSlots, 0);

  const u32 first_agent = cta.rank * (shape.threads + groups + kTmaSlots);
  cta.first_slot = first_agent + shape.threads + groups;
  if (same) {  // in place: a new array of this size would be mapped and faulted in anew
    for (Thread& thread : cta.threads) {
      std::destroy_at(&thread);
      std::construct_at(&thread);
    }
  } else {
    cta.threads = std::vector<Thread>(shape.threads);
  }
  cta.sm = {};
  cta.warps = std::vector<Warp>(warps);
  cta.warpgroups = std::vector<Warpgroup>(groups);
  const u32 registers = cta.entry_registers = entry_registers(shape.threads);
  for (u32 w = 0; w < warps; w++) {
    Warp& warp = cta.warps[w];
    warp.cta = &cta;
    warp.index = w;
    warp.threads = &cta.threads[w * kWarp];
    warp.lanes = std::min(kWarp, shape.threads - w * kWarp);
    warp.registers = registers;
  }
  for (u32 g = 0; g < groups; g++) {
    Warpgroup& group = cta.warpgroups[g];
    group.cta = &cta;
    group.index = g;
    group.agent = first_agent + shape.threads + g;
    group.joined.assign(4 * size_t{cluster.width}, 0);
  }
  for (u32 i = 0; i < shape.threads; i++) {
    Thread& thread = cta.threads[i];
    thread.cta = &cta;
    thread.warp = &cta.warps[i / kWarp];
    thread.lane = i % kWarp;
    thread.agent = first_agent + i;
    thread.clock = cluster.clocks.get() + size_t{thread.agent} * cluster.width;
    std::memset(thread.clock, 0, cluster.width * sizeof(Tick));
    thread.tick() = 1;
    thread.ids.thread = i;
    thread.ids.block_threads = shape.threads;
    u64 rest = launch_block;
    for (int d = 0; d < 3; d++) {
      thread.ids.grid[d] = shape.grid[d];
      thread.ids.block[d] = static_cast<u32>(rest % shape.grid[d]);
      rest /= shape.grid[d];
    }
    thread.ids.cluster_rank = cta.rank;
    thread.ids.cluster_size = shape.cluster;
  }
}

}  // namespace

void reset_cluster(Cluster& cluster, Worker& worker, u64 index) {
  const LaunchShape& shape = worker.grid.shape;
  const u32 groups = div_up(shape.threads, kWarpgroup);
  cluster.worker = &worker;
  cluster.index = index;
  cluster.launch = worker.grid.launch;
  const u32 agents = shape.cluster * (shape.threads + groups + kTmaSlots);
  const u32 width = div_up(agents, 16) * 16;
  if (cluster.width != width || cluster.agents != agents) {
    cluster.agents = agents;
    cluster.width = width;
    cluster.clocks = allocate<Tick>(size_t{agents} * width, 64);
  }
  cluster.generation = 0;
  cluster.arrived = 0;
  cluster.collecting.assign(width, 0);
  cluster.completed.assign(width, 0);
  cluster.waiters.clear();
  cluster.news.clear();
  cluster.pdl_waits.clear();
  if (cluster.ctas.size() > shape.cluster) cluster.ctas.resize(shape.cluster);
  while (cluster.ctas.size() < shape.cluster) {
    cluster.ctas.push_back(std::make_unique<Cta>(cluster));
    cluster.ctas.back()->rank = static_cast<u32>(cluster.ctas.size() - 1);
  }
  for (u32 rank = 0; rank < shape.cluster; rank++)
    reset_cta(*cluster.ctas[rank], shape, index * shape.cluster + rank);
  std::memcpy(cluster.block, cluster.ctas[0]->threads[0].ids.block, sizeof cluster.block);
}

u32 Cluster::live() const {
  u32 live = 0;
  for (const auto& cta : ctas) live += cta->live_threads;
  return live;
}

Thread& Cluster::thread(u32 agent) {
  for (auto& cta : ctas) {
    const u32 first = cta->threads[0].agent;
    if (agent >= first && agent - first < cta->threads.size()) return cta->threads[agent - first];
  }
  throw Error(FA3_INTERNAL, fmt::format("simulator: agent {} is no thread", agent));
}

// Asynchronous work that outlives its CTA, phases that nobody waited for.
void check_cluster_end(Cluster& cluster) {
  for (const auto& cta : cluster.ctas) {
    for (const auto& [offset, bar] : cta->mbarriers) {
      if (!bar.live) continue;
      const std::string name = cta->name(offset);
      if (bar.tx != 0 || bar.phase_bytes != bar.delivered)
        fail(
            *cta, Rule::kMbarrier, name,
            fmt::format("the CTA ended while {} expects {} bytes more in phase {} ({} expected, {} "
                        "delivered)",
                        name, bar.tx, bar.phase, bar.phase_bytes, bar.delivered),
            "the expected bytes must equal those of the copies, and each copy must be waited for",
            {access_of(cluster, bar.last_agent, intern(bar.last_op, bar.last_where))});
      if (bar.last_had_bytes && bar.observed < bar.phase)
        fail(*cta, Rule::kMbarrier, name,
             fmt::format("the CTA ended and nobody waited for phase {} of {}, in which {} bytes "
                         "were copied into its shared memory",
                         bar.phase - 1, name, bar.delivered),
             "a wait for every copy before the CTA ends",
             {access_of(cluster, bar.last_agent, intern(bar.last_op, bar.last_where))});
    }
    for (const Warpgroup& group : cta->warpgroups)
      if (!group.ops.empty() && group.executed < group.first + group.ops.size())
        fail(*cta, Rule::kWgmma, "",
             fmt::format("the CTA ended while a wgmma of warpgroup {} was still open", group.index),
             "wgmma_commit() and wgmma_wait<0>() before the warpgroup ends",
             {{"wgmma", cluster.agent_name(group.agent), text(group.ops.back().where)}});
  }
}

// All threads that have not ended must arrive.
void complete_cluster_barrier(Cluster& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.live()) return;
  cluster.arrived = 0;
  cluster.generation++;
  cluster.completed = cluster.collecting;
  cluster.worker->wake_all(cluster.waiters);
}

}  // namespace fa3::sim

// ---- The cluster barrier ------------------------------------------------------------------------
namespace fa3::twin {
using namespace sim;

void cluster_arrive(bool release, Where where) {
  if (omitted("cluster_arrive", where)) return;
  Thread& thread = enter("cluster_arrive", where);
  Cluster& cluster = thread.cta->cluster;
  if (thread.cluster_arrived > cluster.generation)
    fail(*thread.cta, Rule::kCluster, "cluster barrier",
         fmt::format("{} arrives twice in generation {} of the cluster barrier",
                     thread_name(thread), cluster.generation),
         "a cluster_wait() between two arrivals of a thread",
         {access_of(thread, "cluster_arrive", where)});
  thread.cluster_arrived = cluster.generation + 1;
  for (auto& [offset, bar] : thread.cta->mbarriers)
    if (bar.fenced && bar.visible_after == 0 && bar.initialised.agent == thread.agent)
      bar.visible_after = thread.cluster_arrived;
  if (release) {
    join(cluster.collecting.data(), thread.clock, cluster.width);
    thread.tick()++;
  }
  cluster.arrived++;
  complete_cluster_barrier(cluster);
}

void cluster_wait(Where where) {
  if (omitted("cluster_wait", where)) return;
  Thread& thread = enter("cluster_wait", where);
  Cluster& cluster = thread.cta->cluster;
  if (thread.cluster_arrived == 0 || thread.cluster_waited == thread.cluster_arrived)
    fail(
        *thread.cta, Rule::kCluster, "cluster barrier",
        fmt::format("{} waits for the cluster barrier without having arrived", thread_name(thread)),
        "cluster_arrive() before cluster_wait()", {access_of(thread, "cluster_wait", where)});
  while (cluster.generation < thread.cluster_arrived) {
    cluster.waiters.push_back(&thread);
    cluster.worker->block(thread, {Waiting::On::kCluster, 0, 0});
  }
  thread.cluster_waited = thread.cluster_arrived;
  join(thread.clock, cluster.completed.data(), cluster.width);
  thread.version++;
}

u32 map_to_rank(u32 address, u32 rank, Where where) {
  Thread& thread = self();
  if (rank >= thread.ids.cluster_size)
    fail(*thread.cta, Rule::kCluster, "",
         fmt::format("rank {} of a cluster of {} CTAs", rank, thread.ids.cluster_size),
         "a rank below cluster_size()", {access_of(thread, "map_to_rank", where)});
  return (address & ((1u << kRankShift) - 1)) | (rank + 1) << kRankShift;
}

}  // namespace fa3::twin
