// SPDX-License-Identifier: BSD-3-Clause
// worker.cpp — clusters that come and go, threads that begin, enter primitives and end.
#include "sim/worker.h"

#include <algorithm>

#include "core/status.h"
#include "sim/numbers.h"

namespace fa3::sim {
namespace {

thread_local Worker* tls_worker = nullptr;

// Clusters that ended: stacks and clocks cost more than a small CTA's run, so an OS thread keeps
// some.
constexpr size_t kSpares = 8;
thread_local std::vector<std::unique_ptr<Cluster>> spares;

// Polls of all threads, without progress of any, after which events fire that were to come late;
// and after which nothing is expected any more.
constexpr u64 kIdlePolls = 4096;
constexpr u64 kLivelockPolls = 1'000'000;

}  // namespace

Thread& self() {
  if (tls_worker == nullptr || tls_worker->current == nullptr)
    throw Error(FA3_INTERNAL, "simulator: a device primitive was called outside of a kernel");
  return *tls_worker->current;
}

Thread* running() {
  return tls_worker != nullptr && !tls_worker->error && !std::uncaught_exceptions()
             ? tls_worker->current
             : nullptr;
}

Thread& enter(const char* op, Where where, Yields yields) {
  if (tls_worker == nullptr) self();
  return tls_worker->enter(op, where, yields);
}

bool omitted(const char* op, Where where) {
  if (tls_worker == nullptr) self();
  const auto& omit = tls_worker->grid.device.options.omit;
  return omit && omit(op, where);
}

void Worker::run(const std::function<bool(u64& index)>& next, u32 resident) {
  tls_worker = this;
  const bool alone = resident == 1;
  if (!alone) policy = Policy::draw(random, grid.device.options);
  try {
    bool more = true;
    for (;;) {
      u64 index = 0;
      while (more && resident_.size() < resident && (more = next(index))) {
        if (alone) {  // what happens in a cluster depends on seed and cluster alone
          // Mixed, since seeds one step of the generator apart would draw one stream, shifted.
          random = Random(Random(grid.device.options.seed).next() + Random(~index).next());
          policy = Policy::draw(random, grid.device.options);
          step = idle_ = last_slot_ = 0;
        }
        start_cluster(index);
      }
      if (resident_.empty()) break;
      Thread* thread = ended_ == 0 ? pick() : nullptr;
      if (thread != nullptr) {
        current = thread;
        main.switch_to(thread->fiber);
        current = nullptr;
        if (error) std::rethrow_exception(error);
      }
      for (size_t i = resident_.size(); ended_ > 0 && i-- > 0;)
        if (resident_[i]->live() == 0) {
          end_cluster(*resident_[i]);
          if (spares.size() < kSpares) spares.push_back(std::move(resident_[i]));
          resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
          ended_--;
        }
    }
  } catch (...) {
    current = nullptr;
    tls_worker = nullptr;
    throw;
  }
  tls_worker = nullptr;
}

void Worker::start_cluster(u64 index) {
  if (timed()) take_exponentials();  // of runs before, which nobody charged
  std::unique_ptr<Cluster> cluster;
  if (spares.empty()) {
    cluster = std::make_unique<Cluster>();
  } else {
    cluster = std::move(spares.back());
    spares.pop_back();
  }
  reset_cluster(*cluster, *this, index);
  u32 slot = 0;
  for (auto& cta : cluster->ctas) {
    for (Warp& warp : cta->warps) {
      while (slot < warps_.size() && warps_[slot] != nullptr) slot++;
      if (slot == warps_.size()) {
        warps_.push_back(nullptr);
        runnable_.push_back(0);
        runnable_slots_.resize((warps_.size() + 63) / 64);
      }
      warp.slot = slot;
      warp.priority = static_cast<u32>(random.next());
      if (Trace* trace = grid.device.options.trace)
        trace->name_row(cta->number(), warp.index, fmt::format("warp {}", warp.index));
      warps_[slot] = &warp;
    }
    if (Trace* trace = grid.device.options.trace) {
      for (const Warpgroup& group : cta->warpgroups)
        trace->name_row(cta->number(), Trace::kWgmmaRow + group.index,
                        fmt::format("wgmma of warpgroup {}", group.index));
    }
    for (u32 i = 0; i < cta->threads.size(); i++) {
      Thread& thread = cta->threads[i];
      thread.fiber.start(cta->stacks->bottom(i), cta->stacks->bytes(i), &thread_main, &thread);
      wake(thread);
    }
  }
  resident_.push_back(std::move(cluster));
}

void Worker::end_cluster(Cluster& cluster) {
  // Copies that nobody waits for still take effect before the CTA is gone.
  for (auto& cta : cluster.ctas)
    for (Warp& warp : cta->warps) warps_[warp.slot] = nullptr;
  for (size_t i = 0; i < events_.size();)
    if (events_[i].cluster == &cluster) {
      fire(i);
      i = 0;
    } else {
      i++;
    }
  check_cluster_end(cluster);
}

void Worker::thread_main(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  Worker& worker = *thread.cta->cluster.worker;
  try {
    worker.grid.kernel(worker.grid.args);
    worker.finish(thread);
  } catch (...) {
    worker.error = std::current_exception();
  }
  worker.switch_away(thread, true);
}

// On a fiber that ended or failed: back to run(). Else straight to the next fiber.
void Worker::switch_away(Thread& from, bool finished) {
  if (finished) {
    from.fiber.switch_to(main, true);
    return;
  }
  Thread* next = pick();
  if (next == &from) return;
  current = next;
  from.fiber.switch_to(next->fiber);
}

Thread& Worker::enter(const char* op, Where where, Yields yields) {
  Thread& thread = *current;
  if (thread.lost_registers.file != nullptr) check_lost(thread);
  thread.op = op;
  thread.where = where;
  if (yields != Yields::kPolling) {
    progress_++;
    if (yields != Yields::kMeeting) idle_ = 0;
  } else {
    if (++idle_ % kIdlePolls == 0) {
      if (!events_.empty())
        fire(random.below(static_cast<u32>(events_.size())));
      else if (idle_ > kLivelockPolls)
        deadlock(true);
    }
    if (timed()) {
      spend(thread);
      return thread;
    }
    // Whoever polls lets any other thread run, whatever the policy: what it polls for may be
    // theirs.
    fair_ = true;
    yield(thread);
    return thread;
  }
  if (timed()) {
    spend(thread);
    return thread;
  }
  if (yields != Yields::kNever && policy.yield_in != 0 && random.one_in(policy.yield_in))
    yield(thread);
  return thread;
}

void Worker::check_lost(Thread& thread) {
  if (thread.lost_registers.file == nullptr) return;
  fail(*thread.cta, Rule::kRegisterInFlight, "",
       "registers of a wgmma in flight go out of scope before the wait that covers it",
       "wgmma_wait<N>() before the registers end",
       {access_of(thread, "wgmma", thread.lost_registers)});
}

// What a thread must not leave open.
void Worker::check_thread_end(Thread& thread) {
  check_lost(thread);
  const auto refuse = [&](const char* what, const char* missing) {
    fail(*thread.cta, Rule::kBulkGroup, "",
         fmt::format("{} ended with {}", thread_name(thread), what), missing,
         {access_of(thread, thread.op, thread.where)});
  };
  if (!thread.bulk_open.empty())
    refuse("bulk stores that no group was committed for", "bulk_commit() and bulk_wait_read<0>()");
  for (const auto& group : thread.bulk_groups)
    for (const auto& copy : group)
      if (!copy->waited)
        refuse("a bulk store that may still read shared memory",
               "bulk_wait_read<0>() by the thread that issued it, before it ends");
  const auto open = [](const PendingCopy& copy) { return copy.landed == nullptr; };
  const auto any_open = [&](const auto& group) {
    return std::any_of(group.begin(), group.end(), open);
  };
  if (any_open(thread.copies_open) ||
      std::any_of(thread.copy_groups.begin(), thread.copy_groups.end(), any_open))
    refuse("a cp_async in flight that no mbarrier waits for", "cp_async_wait<0>() before it ends");
}

void Worker::finish(Thread& thread) {
  Cta& cta = *thread.cta;
  check_thread_end(thread);
  thread.exited = true;
  thread.op = "exit";
  thread.warp->exited |= 1u << thread.lane;
  for (const Collective& pending : thread.warp->pending)
    if (pending.mask >> thread.lane & 1)
      fail(cta, Rule::kDivergence, "",
           fmt::format("{} ended while lanes of its warp wait for it in {}", thread_name(thread),
                       pending.op),
           "all lanes of the mask must execute the instruction",
           {{pending.op, fmt::format("warp {}", thread.warp->index), text(pending.where)}});
  sleep(thread);
  cta.live_threads--;
  progress_++;
  if (thread.cluster_arrived > cta.cluster.generation) cta.cluster.arrived--;
  complete_cluster_barrier(cta.cluster);
  if (cta.cluster.live() == 0) ended_++;
}

}  // namespace fa3::sim
