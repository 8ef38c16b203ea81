// SPDX-License-Identifier: BSD-3-Clause
// report.cpp — names of objects and agents, and the deadlock report.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "sim/worker.h"

namespace fa3::sim {

u32 Cta::number() const { return static_cast<u32>(cluster.index * cluster.ctas.size() + rank); }

std::string Cta::name(u32 offset) const {
  for (const Member& member : members)
    if (offset >= member.offset && offset < member.offset + member.bytes) {
      const u32 inside = offset - member.offset;
      return inside == 0 ? member.name : fmt::format("{}+{}", member.name, inside);
    }
  return fmt::format("shared memory+{}", offset);
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
      return "the copy engine" + where;
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
  std::map<std::pair<u32, std::string>, std::pair<u32, const Thread*>> groups;  // by warp and text
  for (const Thread& thread : cta.threads) {
    if (thread.exited) continue;
    auto& entry = groups[{thread.warp->index, waiting_text(thread)}];
    entry.first++;
    if (entry.second == nullptr) entry.second = &thread;
  }
  for (const auto& [key, entry] : groups)
    out.push_back(
        {fmt::format("{} ({})", entry.second->op, key.second),
         fmt::format("warp {}, {} lane{}", key.first, entry.first, entry.first == 1 ? "" : "s"),
         text(entry.second->where)});
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
       "an arrival, a copy or a release that the waits below ask for", std::move(waits));
}

}  // namespace fa3::sim
