// SPDX-License-Identifier: BSD-3-Clause
// named_barrier.cpp — bar.sync and bar.arrive: 16 barriers of a CTA, counted by warps.
#include "sim/collective.h"

namespace fa3::sim {
namespace {

struct Arrival {
  u32 id, threads;
  bool waits;
  const char* op;
  Where where;
};

void check(Thread& thread, const Arrival& arrival) {
  const Cta& cta = *thread.cta;
  const u32 cta_threads = thread.ids.block_threads;
  const u32 rounded = (cta_threads + kWarp - 1) / kWarp * kWarp;
  const auto refuse = [&](std::string message, std::string missing) {
    fail(cta, Rule::kNamedBarrier, fmt::format("named barrier {}", arrival.id), std::move(message),
         std::move(missing), {access_of(thread, arrival.op, arrival.where)});
  };
  if (arrival.id >= kNamedBarriers)
    refuse(fmt::format("{} with id {}", arrival.op, arrival.id), "an id from 0 to 15");
  if (arrival.threads == 0 || arrival.threads % kWarp != 0 || arrival.threads > rounded)
    refuse(fmt::format("{} on named barrier {} for {} threads in a CTA of {}", arrival.op,
                       arrival.id, arrival.threads, cta_threads),
           "a multiple of 32, at most the threads of the CTA");
}

// One warp arrives, with the clocks of its lanes.
void arrive_warp(Thread& last, const Arrival& arrival, void* const* operands) {
  Cta& cta = *last.cta;
  const Warp& warp = *last.warp;
  NamedBarrier& barrier = cta.barriers[arrival.id];
  const std::string name = fmt::format("named barrier {}", arrival.id);
  const auto refuse = [&](std::string message, std::string missing) {
    fail(cta, Rule::kNamedBarrier, name, std::move(message), std::move(missing),
         {access_of(last, arrival.op, arrival.where),
          {"the first arrival", fmt::format("warp {}", barrier.first_warp),
           text(barrier.first_where)}});
  };
  if (barrier.arrived == 0) {
    barrier.threads = arrival.threads;
    barrier.warps_arrived = 0;
    barrier.first_where = arrival.where;
    barrier.first_warp = warp.index;
    barrier.collecting.resize(cta.cluster.width);
  }
  if (barrier.threads != arrival.threads)
    refuse(fmt::format("warp {} gives {} a count of {} threads, warp {} gave {}", warp.index, name,
                       arrival.threads, barrier.first_warp, barrier.threads),
           "the same count from every participant");
  if (barrier.warps_arrived >> warp.index & 1)
    refuse(fmt::format("warp {} arrives twice at {} in one generation", warp.index, name),
           "one arrival per warp and generation: a second barrier id, or a wait between the two");
  barrier.warps_arrived |= 1u << warp.index;
  barrier.arrived += kWarp;
  for (u32 i = 0; i < kWarp; i++)
    if (operands[i] != nullptr) {
      Thread& thread = *static_cast<Thread*>(operands[i]);
      join(barrier.collecting.data(), thread.clock, cta.cluster.width);
      thread.tick()++;
    }
  if (barrier.arrived < barrier.threads) return;
  barrier.arrived = 0;
  barrier.generation++;
  barrier.completed = barrier.collecting;
  cta.cluster.worker->wake_all(barrier.waiters);
}

void barrier(const Arrival& arrival) {
  Thread& thread = enter(arrival.op, arrival.where);
  check(thread, arrival);
  NamedBarrier& barrier = thread.cta->barriers[arrival.id];
  const u32 lanes = thread.warp->lanes == 32 ? ~0u : (1u << thread.warp->lanes) - 1;
  u64 generation = 0;
  struct Operand {
    Thread* thread;
    u64* generation;
  } mine{&thread, &generation};
  gather(thread, {arrival.op, arrival.where, lanes, true, u64{arrival.id} << 32 | arrival.threads},
         &mine, [&](void* const* operands) {
           void* threads[kWarp] = {};
           for (u32 i = 0; i < kWarp; i++)
             if (operands[i] != nullptr) {
               threads[i] = static_cast<Operand*>(operands[i])->thread;
               *static_cast<Operand*>(operands[i])->generation = barrier.generation;
             }
           arrive_warp(thread, arrival, threads);
         });
  if (!arrival.waits) return;
  while (barrier.generation == generation) {
    barrier.waiters.push_back(&thread);
    thread.cta->cluster.worker->block(thread,
                                      {Waiting::On::kNamedBarrier, arrival.id, arrival.threads});
  }
  join(thread.clock, barrier.completed.data(), thread.cta->cluster.width);
  thread.version++;
}

}  // namespace
}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void bar_sync(u32 id, u32 threads, Where where) {
  if (omitted("bar_sync", where)) return;
  sim::barrier({id, threads, true, "bar_sync", where});
}

void bar_arrive(u32 id, u32 threads, Where where) {
  if (omitted("bar_arrive", where)) return;
  sim::barrier({id, threads, false, "bar_arrive", where});
}

void cta_sync(Where where) {
  if (omitted("cta_sync", where)) return;
  const u32 threads = self().ids.block_threads;
  sim::barrier({0, (threads + kWarp - 1) / kWarp * kWarp, true, "cta_sync", where});
}

}  // namespace fa3::twin
