// SPDX-License-Identifier: BSD-3-Clause
// mbarrier.cpp — mbarriers: counts, bytes, phases, and the clocks that they carry.
#include "sim/mbarrier.h"

namespace fa3::sim {
namespace {

constexpr u32 kMaxCount = (1 << 20) - 1;

void note(Mbarrier& bar, const char* op, Where where, u32 agent) {
  bar.last_op = op;
  bar.last_where = where;
  bar.last_agent = agent;
}

Access last_access(const Cta& cta, const Mbarrier& bar) {
  return {bar.last_op, cta.cluster.agent_name(bar.last_agent), text(bar.last_where)};
}

void complete_phase(Cta& cta, Mbarrier& bar) {
  if (bar.pending != 0 || bar.tx != 0) return;
  bar.phase++;
  bar.pending = bar.expected;
  bar.last_had_bytes = bar.phase_bytes != 0;
  bar.phase_bytes = bar.delivered = 0;
  bar.completed = bar.collecting;
  cta.cluster.worker->wake_all(bar.waiters);
}

[[noreturn]] void fail_arrival(Cta& cta, Thread& thread, const Mbarrier& bar, u32 count,
                               const char* op, Where where) {
  const std::string name = cta.name(bar.offset);
  if (count == 0 || count > bar.pending)
    fail(
        cta, Rule::kMbarrier, name,
        fmt::format("{} on {} brings {} arrivals, but phase {} waits for {} more of {}, and for {} "
                    "bytes",
                    op, name, count, bar.phase, bar.pending, bar.expected, bar.tx),
        "as many arrivals per phase as mbar_init() was told, each after the wait for the phase "
        "before",
        {access_of(thread, op, where), last_access(cta, bar)});
  fail(cta, Rule::kMbarrier, name,
       fmt::format("{} on {} for phase {}, before anybody saw phase {} complete", op, name,
                   bar.phase, bar.phase - 1),
       "a wait for each phase by some thread before the next one begins",
       {access_of(thread, op, where)});
}

void arrive(Cta& cta, Thread& thread, Mbarrier& bar, u32 count, const char* op, Where where) {
  if (count == 0 || count > bar.pending || (bar.phase > 0 && bar.observed < bar.phase))
    fail_arrival(cta, thread, bar, count, op, where);
  note(bar, op, where, thread.agent);
  join(bar.collecting.data(), thread.clock, cta.cluster.width);
  thread.tick()++;
  bar.pending -= count;
  complete_phase(cta, bar);
}

void expect(Cta& cta, Thread& thread, Mbarrier& bar, u32 bytes, const char* op, Where where) {
  bar.tx += bytes;
  bar.phase_bytes += bytes;
  if (bar.tx > kMaxCount)
    fail(cta, Rule::kMbarrier, cta.name(bar.offset),
         fmt::format("{} on {} makes {} bytes outstanding; the limit is {}", op,
                     cta.name(bar.offset), bar.tx, kMaxCount),
         "smaller or fewer copies per phase", {access_of(thread, op, where)});
  note(bar, op, where, thread.agent);
}

// hardware: true iff the phase with this parity is the one just completed.
bool done(const Mbarrier& bar, u32 parity) { return (bar.phase & 1) != parity; }

// A thread that waits for the phase after the last one it saw, while the barrier is already two
// further: with one parity bit it would wait for ever. At its first wait it may mean any phase of
// that parity.
void check_late(Cta& cta, Thread& thread, const Mbarrier& bar, u32 parity, const char* op,
                Where where) {
  const i64 last = bar.last_seen[thread.ids.thread];
  const i64 meant = last == -2 ? i64{parity} : last + 1;
  if ((static_cast<u64>(meant) & 1) != parity || static_cast<i64>(bar.phase) < meant + 2) return;
  const std::string name = cta.name(bar.offset);
  fail(cta, Rule::kMbarrier, name,
       fmt::format("{} on {} waits for phase {}, two phases late: {} phases are complete, and the "
                   "parity bit reads as if the wanted one were not",
                   op, name, meant, bar.phase),
       "the barrier must not complete a phase before every waiter saw the one before; its arrivals "
       "do not wait for this thread",
       {access_of(thread, op, where), last_access(cta, bar)});
}

void acquire(Cta& cta, Thread& thread, Mbarrier& bar) {
  bar.observed = bar.phase;
  bar.last_seen[thread.ids.thread] = static_cast<i64>(bar.phase) - 1;
  join(thread.clock, bar.completed.data(), cta.cluster.width);
  thread.version++;
}

// The hardware's time limit of a try_wait. It strikes the lanes of a warp alike: they poll
// together.
bool times_out(Thread& thread) {
  const Cluster& cluster = thread.cta->cluster;
  Random random(cluster.worker->grid.device.options.seed ^ cluster.index << 48 ^
                u64{thread.ids.thread / kWarp} << 32 ^ thread.polls++);
  return random.one_in(4);
}

void check_parity(Cta& cta, Thread& thread, u32 parity, const char* op, Where where) {
  if (parity > 1)
    fail(cta, Rule::kMbarrier, "", fmt::format("{} with parity {}", op, parity),
         "a parity of 0 or 1", {access_of(thread, op, where)});
}

}  // namespace

Cta& cta_of(Thread& thread, u32& address, const char* op, Where where) {
  Cluster& cluster = thread.cta->cluster;
  const u32 rank = address >> kRankShift;
  if (rank == 0) return *thread.cta;
  address &= (1u << kRankShift) - 1;
  if (rank > cluster.ctas.size())
    fail(*thread.cta, Rule::kCluster, "",
         fmt::format("{} to CTA {} of a cluster of {}", op, rank - 1, cluster.ctas.size()),
         "an address from map_to_rank()", {access_of(thread, op, where)});
  Cta& cta = *cluster.ctas[rank - 1];
  if (cluster.generation == 0 && &cta != thread.cta)
    fail(*thread.cta, Rule::kCluster, "",
         fmt::format("{} touches shared memory of CTA {} before the first cluster barrier", op,
                     rank - 1),
         "cluster_arrive() and cluster_wait() by all threads: only then every CTA has started",
         {access_of(thread, op, where)});
  if (cta.over())
    fail(*thread.cta, Rule::kCluster, "",
         fmt::format("{} touches shared memory of CTA {}, which has ended", op, rank - 1),
         "a cluster barrier (or a last wait) before a CTA ends whose memory others still use",
         {access_of(thread, op, where)});
  return cta;
}

Mbarrier& find_mbarrier(Cta& cta, Thread& by, const char* op, u32 address, bool tx, Where where) {
  const u32 offset = address - kSmemWindow;
  const auto found = cta.mbarriers.find(offset);
  if (found == cta.mbarriers.end() || !found->second.live)
    fail(cta, Rule::kMbarrier, cta.name(offset),
         fmt::format("{} on {}, which is no initialised mbarrier", op, cta.name(offset)),
         "mbar_init() before, and a barrier after it", {access_of(by, op, where)});
  Mbarrier& bar = found->second;
  if (!bar.initialised.before(by.clock) &&
      (bar.visible_after == 0 || by.cluster_waited < bar.visible_after))
    fail(cta, Rule::kMbarrier, cta.name(offset),
         fmt::format("{} on {} before its initialisation is visible to {}", op, cta.name(offset),
                     thread_name(by)),
         "cta_sync() (in a cluster: cluster_arrive() and cluster_wait()) between mbar_init() and "
         "the first use",
         {access_of(by, op, where),
          {"mbar_init", cta.cluster.agent_name(bar.initialised.agent), text(bar.init_at)}});
  if ((tx || &cta != by.cta) && !bar.fenced)
    fail(cta, Rule::kMbarrier, cta.name(offset),
         fmt::format("{} uses {} beyond the threads of its CTA, and its initialisation was not "
                     "fenced",
                     op, cta.name(offset)),
         "fence_mbar_init() by the thread of mbar_init(), before the barrier",
         {access_of(by, op, where),
          {"mbar_init", cta.cluster.agent_name(bar.initialised.agent), text(bar.init_at)}});
  return bar;
}

void complete_tx(Cta& cta, Mbarrier& bar, u32 bytes, Epoch epoch, const char* op, Where where) {
  bar.tx -= bytes;
  bar.delivered += bytes;
  const auto name = [&] { return cta.name(bar.offset); };
  if (bar.tx < 0 && bar.pending == 0)
    fail(cta, Rule::kMbarrier, name(),
         fmt::format("{} delivers {} bytes to {}, {} more than phase {} expects", op, bar.delivered,
                     name(), -bar.tx, bar.phase),
         "mbar_arrive_expect_tx() with the bytes of all copies of the phase",
         {{op, cta.cluster.agent_name(epoch.agent), text(where)}, last_access(cta, bar)});
  if (bar.tx < -static_cast<i64>(kMaxCount))
    fail(cta, Rule::kMbarrier, name(),
         fmt::format("{} leaves {} with a count of {} bytes, beyond the limit", op, name(), bar.tx),
         "mbar_arrive_expect_tx() before the copies",
         {{op, cta.cluster.agent_name(epoch.agent), text(where)}});
  Tick& known = bar.collecting[epoch.agent];
  known = std::max(known, epoch.tick);
  note(bar, op, where, epoch.agent);
  complete_phase(cta, bar);
}

void add_pending(Mbarrier& bar) { bar.pending++; }

void arrive_async(Cta& cta, Thread& thread, Mbarrier& bar, Epoch epoch, const char* op,
                  Where where) {
  if (bar.pending == 0) fail_arrival(cta, thread, bar, 1, op, where);
  note(bar, op, where, thread.agent);
  Tick& known = bar.collecting[epoch.agent];
  known = std::max(known, epoch.tick);
  bar.pending--;
  complete_phase(cta, bar);
}

}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void mbar_init(u32 bar, u32 count, Where where) {
  Thread& thread = enter("mbar_init", where);
  Cta& cta = *thread.cta;
  const u32 offset = bar - kSmemWindow;
  const std::string name = cta.name(offset);
  if (bar < kSmemWindow || offset + 8 > cta.smem_bytes || offset % 8 != 0)
    fail(cta, offset % 8 != 0 ? Rule::kAlignment : Rule::kOutOfBounds, name,
         fmt::format("mbar_init at offset {} of {} bytes of shared memory", offset, cta.smem_bytes),
         "8-byte aligned memory of the CTA", {access_of(thread, "mbar_init", where)});
  if (count == 0 || count > kMaxCount)
    fail(cta, Rule::kMbarrier, name, fmt::format("mbar_init of {} with count {}", name, count),
         fmt::format("a count from 1 to {}", kMaxCount), {access_of(thread, "mbar_init", where)});
  Mbarrier& mbar = cta.mbarriers[offset];
  if (mbar.live)
    fail(cta, Rule::kMbarrier, name, fmt::format("mbar_init of {}, which is in use", name),
         "mbar_inval() before it is initialised again",
         {access_of(thread, "mbar_init", where),
          {"mbar_init", cta.cluster.agent_name(mbar.initialised.agent), text(mbar.init_at)}});
  const Accessor by{thread.clock, thread.epoch(), intern("mbar_init", where), false};
  cta.shadow.write(by, offset, 8);
  cta.shadow.set_barrier(offset, true);
  mbar = {};
  mbar.offset = offset;
  mbar.live = true;
  mbar.initialised = thread.epoch();
  mbar.init_at = where;
  mbar.expected = mbar.pending = count;
  mbar.collecting.assign(cta.cluster.width, 0);
  mbar.completed.assign(cta.cluster.width, 0);
  mbar.last_seen.assign(cta.threads.size(), -2);
}

void mbar_inval(u32 bar, Where where) {
  Thread& thread = enter("mbar_inval", where);
  Cta& cta = *thread.cta;
  Mbarrier& mbar = find_mbarrier(cta, thread, "mbar_inval", bar, false, where);
  if (!mbar.waiters.empty() || mbar.tx != 0)
    fail(cta, Rule::kMbarrier, cta.name(mbar.offset),
         fmt::format("mbar_inval of {} with {} threads waiting and {} bytes outstanding",
                     cta.name(mbar.offset), mbar.waiters.size(), mbar.tx),
         "all its users must be done", {access_of(thread, "mbar_inval", where)});
  mbar.live = false;
  cta.shadow.set_barrier(mbar.offset, false);
}

void fence_mbar_init(Where where) {
  if (omitted("fence_mbar_init", where)) return;
  Thread& thread = enter("fence_mbar_init", where);
  for (auto& [offset, bar] : thread.cta->mbarriers)
    if (bar.live && bar.initialised.agent == thread.agent) bar.fenced = true;
}

void mbar_arrive(u32 bar, u32 count, bool cluster, Scope scope, Where where) {
  const char* op = cluster ? "mbar_arrive_cluster" : "mbar_arrive";
  if (omitted(op, where)) return;
  Thread& thread = enter(op, where);
  Cta& cta = cta_of(thread, bar, op, where);
  if (&cta != thread.cta && scope == Scope::kCta)
    fail(cta, Rule::kMbarrier, cta.name(bar - kSmemWindow),
         "mbar_arrive at CTA scope on an mbarrier of another CTA",
         "release at cluster scope: mbar_arrive_cluster()", {access_of(thread, op, where)});
  Mbarrier& mbar = find_mbarrier(cta, thread, op, bar, false, where);
  arrive(cta, thread, mbar, count, op, where);
}

void mbar_arrive_drop(u32 bar, Where where) {
  Thread& thread = enter("mbar_arrive_drop", where);
  Mbarrier& mbar = find_mbarrier(*thread.cta, thread, "mbar_arrive_drop", bar, false, where);
  if (mbar.expected == 0)
    fail(*thread.cta, Rule::kMbarrier, thread.cta->name(mbar.offset),
         "mbar_arrive_drop on an mbarrier that expects nobody",
         "at most as many drops as mbar_init() was told",
         {access_of(thread, "mbar_arrive_drop", where)});
  mbar.expected--;
  arrive(*thread.cta, thread, mbar, 1, "mbar_arrive_drop", where);
}

void mbar_expect_tx(u32 bar, u32 bytes, bool cluster, Where where) {
  const char* op = cluster ? "mbar_expect_tx_cluster" : "mbar_expect_tx";
  Thread& thread = enter(op, where);
  Cta& cta = cta_of(thread, bar, op, where);
  expect(cta, thread, find_mbarrier(cta, thread, op, bar, true, where), bytes, op, where);
}

void mbar_arrive_expect_tx(u32 bar, u32 bytes, bool cluster, Where where) {
  const char* op = cluster ? "mbar_arrive_expect_tx_cluster" : "mbar_arrive_expect_tx";
  if (omitted(op, where)) return;
  Thread& thread = enter(op, where);
  Cta& cta = cta_of(thread, bar, op, where);
  Mbarrier& mbar = find_mbarrier(cta, thread, op, bar, true, where);
  expect(cta, thread, mbar, bytes, op, where);
  arrive(cta, thread, mbar, 1, op, where);
}

bool mbar_test_wait(u32 bar, u32 parity, Scope, Where where) {
  Thread& thread = enter("mbar_test_wait", where, Yields::kPolling);
  Cta& cta = *thread.cta;
  check_parity(cta, thread, parity, "mbar_test_wait", where);
  Mbarrier& mbar = find_mbarrier(cta, thread, "mbar_test_wait", bar, false, where);
  if (!done(mbar, parity)) {
    check_late(cta, thread, mbar, parity, "mbar_test_wait", where);
    return false;
  }
  acquire(cta, thread, mbar);
  return true;
}

bool mbar_try_wait(u32 bar, u32 parity, Scope, Where where) {
  Thread& thread = enter("mbar_try_wait", where, Yields::kPolling);
  Cta& cta = *thread.cta;
  Worker& worker = *cta.cluster.worker;
  check_parity(cta, thread, parity, "mbar_try_wait", where);
  Mbarrier& mbar = find_mbarrier(cta, thread, "mbar_try_wait", bar, false, where);
  if (!done(mbar, parity)) {
    check_late(cta, thread, mbar, parity, "mbar_try_wait", where);
    if (times_out(thread)) return false;
    thread.wake_spurious = true;
    mbar.waiters.push_back(&thread);
    worker.block(thread, {Waiting::On::kMbarrier, mbar.offset, parity});
    thread.wake_spurious = false;
    std::erase(mbar.waiters, &thread);
    if (!done(mbar, parity)) return false;
  }
  acquire(cta, thread, mbar);
  return true;
}

void mbar_wait(u32 bar, u32 parity, Scope, Where where) {
  if (omitted("mbar_wait", where)) return;
  Thread& thread = enter("mbar_wait", where);
  Cta& cta = *thread.cta;
  check_parity(cta, thread, parity, "mbar_wait", where);
  Mbarrier& mbar = find_mbarrier(cta, thread, "mbar_wait", bar, false, where);
  while (!done(mbar, parity)) {
    check_late(cta, thread, mbar, parity, "mbar_wait", where);
    mbar.waiters.push_back(&thread);
    cta.cluster.worker->block(thread, {Waiting::On::kMbarrier, mbar.offset, parity});
  }
  acquire(cta, thread, mbar);
}

}  // namespace fa3::twin
