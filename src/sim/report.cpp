// SPDX-License-Identifier: BSD-3-Clause
// report.cpp — names of objects and agents, and the deadlock report.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/worker.h"

namespace fa3::sim {

u32 Cta::number() const { return static_cast<u32>(cluster.index * cluster.ctas.size() + rank); }

const Member* Cta::member(u32 offset) const {
  for (const Member& member : members)
    if (offset >= member.offset && offset < member.offset + member.bytes) return &member;
  return nullptr;
}

std::string Cta::name(u32 offset) const {
  const Member* in = member(offset);
  if (in == nullptr) return fmt::format("shared memory+{}", offset);
  return offset == in->offset ? in->name : fmt::format("{}+{}", in->name, offset - in->offset);
}

std::string thread_name(const Thread& thread) {
  return fmt::format("warp {} lane {} (thread {})", thread.warp->index, thread.lane,
                     thread.ids.thread);
}

std::string Cluster::agent_name(u32 agent) const {
  for (const auto& cta : ctas) {
    const std::string where = ctas.size() > 1 ? fmt::format(" of CTA {}", cta->rank) : "";
    const u32 first = cta->threads[0].agent;
    const u32 threads = static_cast<u32>(cta->threads.size());
    if (agent >= first && agent < first + threads)
      return thread_name(cta->threads[agent - first]) + where;
    const u32 groups = static_cast<u32>(cta->warpgroups.size());
    if (agent >= first + threads && agent < first + threads + groups)
      return fmt::format("wgmma of warpgroup {}{}", agent - first - threads, where);
    if (agent >= cta->first_slot && agent < cta->first_slot + kTmaSlots)
      return fmt::format("the copy engine for {}{}",
                         thread_name(cta->threads[cta->slot_issuers[agent - cta->first_slot]]),
                         where);
  }
  return fmt::format("agent {}", agent);
}

Access access_of(const Thread& thread, const char* op, Where where) {
  std::string who = thread_name(thread);
  if (thread.cta->cluster.ctas.size() > 1) who += fmt::format(" of CTA {}", thread.cta->rank);
  return {op, std::move(who), text(where)};
}

Access access_of(const Cluster& cluster, u32 agent, u16 id) {
  const Site& at = site(id);
  return {at.op, cluster.agent_name(agent), text(Where{at.file, at.line})};
}

void fail(const Cta& cta, Rule rule, std::string object, std::string message, std::string missing,
          std::vector<Access> accesses) {
  Violation violation(rule, std::move(object), std::move(message), std::move(missing),
                      std::move(accesses));
  const Cluster& cluster = cta.cluster;
  std::copy_n(cta.threads[0].ids.block, 3, violation.block);
  violation.seed = cluster.worker->grid.device.options.seed;
  violation.finish();
  throw violation;
}

namespace {

std::string waiting_text(const Thread& thread) {
  const Cta& cta = *thread.cta;
  const Waiting& waiting = thread.waiting;
  switch (waiting.on) {
    case Waiting::On::kNothing:
      return "polls";
    case Waiting::On::kMbarrier: {
      const auto found = cta.mbarriers.find(waiting.id);
      const u64 phase = found == cta.mbarriers.end() ? 0 : found->second.phase;
      return fmt::format("waits for {} with parity {} (phase {} is open)", cta.name(waiting.id),
                         waiting.detail, phase);
    }
    case Waiting::On::kNamedBarrier:
      return fmt::format("waits at named barrier {} for {} threads", waiting.id, waiting.detail);
    case Waiting::On::kCollective:
      return "waits for lanes of its warp";
    case Waiting::On::kWgmma: {
      const Warpgroup& group = cta.warpgroups[thread.warp->index / 4];
      return fmt::format("waits for wgmma {} of its warpgroup; {} posted by all warps", waiting.id,
                         group.ready);
    }
    case Waiting::On::kBulk:
      return "waits for its bulk groups";
    case Waiting::On::kCluster:
      return "waits at the cluster barrier";
    case Waiting::On::kRegisters:
      return fmt::format("waits for registers: wants {}, {} are free", waiting.detail,
                         cta.register_pool);
  }
  return "";
}

// Lines of one CTA: threads that wait alike together, then every barrier that is open.
void describe_cta(const Cta& cta, std::vector<Access>& out, std::string& barriers) {
  struct Alike {
    std::vector<u32> warps;
    u32 lanes = 0;
  };
  std::map<std::pair<std::string, std::string>, Alike> groups;  // by wait and line
  for (const Thread& thread : cta.threads) {
    if (thread.exited) continue;
    Alike& alike =
        groups[{fmt::format("{} ({})", thread.op, waiting_text(thread)), text(thread.where)}];
    if (alike.warps.empty() || alike.warps.back() != thread.warp->index)
      alike.warps.push_back(thread.warp->index);
    alike.lanes++;
  }
  for (const auto& [key, alike] : groups)
    out.push_back({key.first,
                   fmt::format("warp {}, {} lane{}", fmt::join(alike.warps, ", "), alike.lanes,
                               alike.lanes == 1 ? "" : "s"),
                   key.second});
  for (const auto& [offset, bar] : cta.mbarriers) {
    if (!bar.live) continue;
    barriers +=
        fmt::format("\n    {} phase {}: want {} arrivals, have {}; {} tx bytes outstanding",
                    cta.name(offset), bar.phase, bar.expected, bar.expected - bar.pending, bar.tx);
    if (bar.last_where.file != nullptr)
      barriers += fmt::format("; last {} at {}", bar.last_op, text(bar.last_where));
  }
  for (u32 id = 0; id < kNamedBarriers; id++)
    if (cta.barriers[id].arrived != 0)
      barriers += fmt::format("\n    named barrier {}: want {} threads, have {}", id,
                              cta.barriers[id].threads, cta.barriers[id].arrived);
  if (!cta.register_waiters.empty())
    for (const Warp& warp : cta.warps)
      if (warp.index % 4 == 0)
        barriers += fmt::format("\n    warpgroup {}: {} registers per thread", warp.index / 4,
                                warp.registers);
}

// The one thing without which the CTA cannot go on, as far as its state tells.
std::string missing_of(const Cta& cta) {
  if (!cta.register_waiters.empty())
    return fmt::format(
        "registers: the counts of setmaxnreg of all {} warpgroups may add up to {} at "
        "most, and each warpgroup that gives some back must execute its reg_decrease()",
        cta.warpgroups.size(), cta.warpgroups.size() * cta.entry_registers);
  const Thread* waits = nullptr;
  const Mbarrier* open = nullptr;
  for (const Thread& thread : cta.threads) {
    if (thread.exited || thread.waiting.on == Waiting::On::kNothing) continue;
    if (waits == nullptr) waits = &thread;
    if (thread.waiting.on != Waiting::On::kMbarrier) continue;
    const Mbarrier& bar = cta.mbarriers.at(thread.waiting.id);
    const std::string name = cta.name(bar.offset);
    if (bar.pending == 0 && bar.tx != 0)
      return fmt::format(
          "{} bytes that {} expects and no copy brings: mbar_arrive_expect_tx() with "
          "the bytes of the copies of one phase",
          bar.tx, name);
    if (open == nullptr || bar.pending < bar.expected) open = &bar;
  }
  if (open != nullptr)
    return fmt::format(
        "{} of {} arrivals on {} in phase {}; if all came that should, its mbar_init() "
        "counts too many, or the wait has the wrong parity (a producer starts with 1)",
        open->pending, open->expected, cta.name(open->offset), open->phase);
  if (waits != nullptr && waits->waiting.on == Waiting::On::kNamedBarrier) {
    const NamedBarrier& barrier = cta.barriers[waits->waiting.id];
    return fmt::format("{} threads at named barrier {}: as many must come as its count says",
                       barrier.threads - barrier.arrived, waits->waiting.id);
  }
  if (waits != nullptr && waits->waiting.on == Waiting::On::kCluster)
    return "cluster_arrive() by all threads of all CTAs of the cluster";
  if (waits != nullptr && waits->waiting.on == Waiting::On::kWgmma)
    return "the same wgmma by all four warps of the warpgroup";
  if (waits != nullptr && waits->waiting.on == Waiting::On::kCollective)
    return "the other lanes of the mask at the same instruction";
  return "what the threads above poll for";
}

}  // namespace

void Worker::deadlock(bool polling) {
  const Cta* shown = nullptr;
  std::vector<Access> waits;
  std::string barriers;
  std::string object;
  for (const auto& cluster : resident_)
    for (const auto& cta : cluster->ctas) {
      if (cta->over() || shown != nullptr) continue;
      shown = cta.get();
      for (const Thread& thread : cta->threads)
        if (object.empty() && thread.waiting.on == Waiting::On::kMbarrier)
          object = cta->name(thread.waiting.id);
      describe_cta(*cta, waits, barriers);
    }
  if (barriers.empty()) barriers = "\n    none";
  fail(*shown, polling ? Rule::kLivelock : Rule::kDeadlock, std::move(object),
       fmt::format("{}; barriers:{}",
                   polling ? "threads poll, nothing else can run and nothing is in flight"
                           : "no thread can run and nothing is in flight",
                   barriers),
       missing_of(*shown), std::move(waits));
}

}  // namespace fa3::sim
