// SPDX-License-Identifier: BSD-3-Clause
// global_memory.cpp — bounds and order of global accesses.
#include "sim/global_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "sim/worker.h"

namespace fa3::sim {
namespace {

constexpr u64 kCell = 16;

[[noreturn]] void fail_access(const GlobalAccessor& by, Rule rule, std::string object,
                              std::string message, std::string missing,
                              std::vector<Access> others = {}) {
  const Cluster& cluster = *by.cluster;
  std::vector<Access> accesses{access_of(cluster, by.epoch.agent, by.site)};
  accesses.insert(accesses.end(), others.begin(), others.end());
  fail(*cluster.ctas[0], rule, std::move(object), std::move(message), std::move(missing),
       std::move(accesses));
}

GlobalMemory::Buffer::Mark mark_of(const GlobalAccessor& by) {
  GlobalMemory::Buffer::Mark mark;
  mark.cluster = static_cast<u32>(by.cluster->index);
  mark.tick = by.epoch.tick;
  mark.agent = static_cast<u16>(by.epoch.agent);
  mark.site = by.site;
  mark.launch = static_cast<u16>(by.cluster->launch);
  mark.generic = !by.async;
  mark.atomic = by.atomic;
  return mark;
}

void merge(Foreign& into, const Foreign& from) {
  for (const auto& [cluster, clock] : from) {
    auto& known = into[cluster];
    known.resize(std::max(known.size(), clock.size()));
    for (size_t i = 0; i < clock.size(); i++) known[i] = std::max(known[i], clock[i]);
  }
}

// Does the access come after what a cluster, its own or another, did?
bool comes_after(const GlobalAccessor& by, u64 other, Epoch earlier) {
  if (other == by.cluster->index) return earlier.before(by.view);
  return std::any_of(by.cluster->news.rbegin(), by.cluster->news.rend(), [&](const News& news) {
    if (!news.learned.before(by.view)) return false;
    const auto clock = news.clocks.find(other);
    return clock != news.clocks.end() && earlier.before(clock->second.data());
  });
}

}  // namespace

Foreign known_to(const Cluster& cluster, const Tick* view) {
  Foreign known;
  for (const News& news : cluster.news)
    if (news.learned.before(view)) merge(known, news.clocks);
  return known;
}

void GlobalMemory::add(std::string name, void* base, u64 bytes, bool read_only) {
  const u64 address = reinterpret_cast<u64>(base);
  const auto after = buffers_.upper_bound(address);
  const Buffer* before = after == buffers_.begin() ? nullptr : std::prev(after)->second.get();
  if ((before != nullptr && before->base + before->bytes > address) ||
      (after != buffers_.end() && after->first < address + bytes))
    throw Error(FA3_INVALID_ARGUMENT,
                fmt::format("simulator: buffer {} of {} bytes overlaps another registered buffer",
                            name, bytes));
  auto buffer = std::make_unique<Buffer>();
  buffer->name = std::move(name);
  buffer->base = address;
  buffer->bytes = bytes;
  buffer->read_only = read_only;
  buffers_[address] = std::move(buffer);
}

void GlobalMemory::remove(const void* base) {
  if (buffers_.erase(reinterpret_cast<u64>(base)) == 0)
    throw Error(FA3_INVALID_ARGUMENT, "simulator: the buffer to remove is not registered");
}

GlobalMemory::Buffer& GlobalMemory::find(const GlobalAccessor& by, const void* pointer, u64 bytes,
                                         bool writes) {
  const u64 address = reinterpret_cast<u64>(pointer);
  const auto after = buffers_.upper_bound(address);
  Buffer* buffer = after == buffers_.begin() ? nullptr : std::prev(after)->second.get();
  if (buffer == nullptr || address + bytes > buffer->base + buffer->bytes) {
    std::string nearest = "no buffer is registered";
    if (buffer != nullptr)
      nearest = fmt::format("the nearest buffer below is {}, {} bytes; this starts at byte {}",
                            buffer->name, buffer->bytes, address - buffer->base);
    else if (after != buffers_.end())
      nearest = fmt::format("{} bytes before {}", after->first - address, after->second->name);
    fail_access(by, Rule::kOutOfBounds, buffer != nullptr ? buffer->name : "",
                fmt::format("{} {} {} bytes outside of every tensor ({})", site(by.site).op,
                            writes ? "writes" : "reads", bytes, nearest),
                "indices clamped to the tensor, or a predicate");
  }
  if (writes && buffer->read_only)
    fail_access(by, Rule::kOutOfBounds, buffer->name,
                fmt::format("{} writes {}, which is an input", site(by.site).op, buffer->name),
                "an output tensor");
  return *buffer;
}

std::string GlobalMemory::name_of(const void* pointer) const {
  const u64 address = reinterpret_cast<u64>(pointer);
  const auto after = buffers_.upper_bound(address);
  if (after == buffers_.begin()) return "";
  const Buffer& buffer = *std::prev(after)->second;
  if (address >= buffer.base + buffer.bytes) return "";
  return fmt::format("{}+{}", buffer.name, address - buffer.base);
}

// Calls act(cell) for each cell of the range, splitting where the range ends inside one.
template <class Act>
void GlobalMemory::for_cells(Buffer& buffer, u64 address, u64 bytes, const Act& act) {
  const u64 first = buffer.base / kCell * kCell;
  if (buffer.cells.empty()) {
    buffer.cells.resize((buffer.base + buffer.bytes - first + kCell - 1) / kCell);
  }
  for (u64 at = address, end = address + bytes; at < end;) {
    Buffer::Cell& cell = buffer.cells[(at - first) / kCell];
    const u64 inside = (at - first) % kCell;
    const u64 count = std::min(end - at, kCell - inside);
    if (cell.split == 0 && count == kCell) {
      act(cell);
    } else {
      const bool fine = inside % 4 != 0 || count % 4 != 0;
      if (cell.split == 0) {
        buffer.parts.emplace_back(fine ? 16 : 4, cell);
        cell.split = static_cast<u32>(buffer.parts.size());
      } else if (fine && buffer.parts[cell.split - 1].size() == 4) {
        std::vector<Buffer::Cell> finer;
        for (const Buffer::Cell& part : buffer.parts[cell.split - 1])
          finer.insert(finer.end(), 4, part);
        buffer.parts[cell.split - 1] = std::move(finer);
      }
      auto& parts = buffer.parts[cell.split - 1];
      const u64 step = kCell / parts.size();
      for (u64 i = inside / step; i < (inside + count) / step; i++) act(parts[i]);
    }
    at += count;
  }
}

void GlobalMemory::check(const GlobalAccessor& by, const Buffer& buffer, const Buffer::Mark& mark,
                         bool writes, bool earlier_writes, u64 address) const {
  if (mark.tick == 0) return;
  const Cluster& cluster = *by.cluster;
  const auto what = [&] { return fmt::format("{}+{}", buffer.name, address - buffer.base); };
  if (mark.launch != static_cast<u16>(cluster.launch)) {
    const auto waited = [&](Epoch wait) { return wait.before(by.view); };
    if (mark.launch <= settled_ ||
        std::any_of(cluster.pdl_waits.begin(), cluster.pdl_waits.end(), waited))
      return;
    const Site& at = site(mark.site);
    fail_access(by, Rule::kLaunch, buffer.name,
                fmt::format("{} {} {}, which an earlier grid {}, and that grid may still run",
                            site(by.site).op, writes ? "writes" : "reads", what(),
                            earlier_writes ? "writes" : "reads"),
                "pdl_wait() before the first access of what earlier grids use",
                {{at.op, "an earlier grid", text(Where{at.file, at.line})}});
  }
  if (by.atomic && mark.atomic) return;
  const Epoch earlier{mark.agent, mark.tick};
  const Site& at = site(mark.site);
  const auto other = [&]() -> Access {
    if (mark.cluster == static_cast<u32>(cluster.index))
      return access_of(cluster, mark.agent, mark.site);
    return {at.op, fmt::format("cluster {} of the grid", mark.cluster),
            text(Where{at.file, at.line})};
  };
  if (!comes_after(by, mark.cluster, earlier))
    fail_access(
        by, Rule::kGlobalRace, buffer.name,
        fmt::format("{} {} {} and nothing orders it after the {} by {}", site(by.site).op,
                    writes ? "writes" : "reads", what(), earlier_writes ? "write" : "read", at.op),
        mark.generic
            ? "a release and an acquire between the two (atomics or barriers), or atomics "
              "for both"
            : "bulk_wait<0>() (not bulk_wait_read) by the thread of the earlier copy, then a "
              "release and an acquire; or reductions for both, or other places",
        {other()});
  if (!by.async || !mark.generic || (!earlier_writes && !writes)) return;
  if (!fenced(by, mark))
    fail_access(
        by, Rule::kProxyFence, buffer.name,
        fmt::format("{} {} {} through the async proxy after {} used it through the generic "
                    "proxy, without a proxy fence between",
                    site(by.site).op, writes ? "writes" : "reads", what(), at.op),
        fmt::format("fence_proxy_async_global() by the thread of {}, before the barrier", at.op),
        {other()});
}

void GlobalMemory::read(const GlobalAccessor& by, const void* pointer, u64 bytes) {
  Buffer& buffer = find(by, pointer, bytes, false);
  if (buffer.read_only) return;
  const u64 address = reinterpret_cast<u64>(pointer);
  const std::lock_guard lock(buffer.mutex);
  for_cells(buffer, address, bytes, [&](Buffer::Cell& cell) {
    check(by, buffer, cell.write, false, true, address);
    const Buffer::Mark mine = mark_of(by);
    const auto same = [&](const Buffer::Mark& mark) {
      return mark.tick == 0 || (mark.cluster == mine.cluster && mark.agent == mine.agent &&
                                mark.launch == mine.launch);
    };
    if (cell.crowd == 0 && same(cell.read)) {
      cell.read = mine;
      return;
    }
    if (cell.crowd == 0) {
      buffer.crowds.push_back({cell.read});
      cell.crowd = static_cast<u32>(buffer.crowds.size());
    }
    auto& crowd = buffer.crowds[cell.crowd - 1];
    const auto found = std::find_if(crowd.begin(), crowd.end(), same);
    if (found != crowd.end())
      *found = mine;
    else
      crowd.push_back(mine);
  });
}

void GlobalMemory::write(const GlobalAccessor& by, const void* pointer, u64 bytes) {
  Buffer& buffer = find(by, pointer, bytes, true);
  const u64 address = reinterpret_cast<u64>(pointer);
  const std::lock_guard lock(buffer.mutex);
  for_cells(buffer, address, bytes, [&](Buffer::Cell& cell) {
    check(by, buffer, cell.write, true, true, address);
    if (cell.crowd == 0) {
      check(by, buffer, cell.read, true, false, address);
    } else {
      for (const Buffer::Mark& mark : buffer.crowds[cell.crowd - 1])
        check(by, buffer, mark, true, false, address);
      buffer.crowds[cell.crowd - 1].clear();
    }
    cell.write = mark_of(by);
    cell.read = {};
    cell.crowd = 0;
  });
}

void GlobalMemory::forget_earlier(u64 launch) {
  if (std::exchange(sync_launch_, launch) == launch) return;
  fences_.clear();
  published_.clear();
}

void GlobalMemory::fence(const Cluster& cluster, Epoch at) {
  const std::lock_guard lock(sync_mutex_);
  forget_earlier(cluster.launch);
  fences_[{cluster.index, at.agent}].push_back(at.tick);
}

bool GlobalMemory::fenced(const GlobalAccessor& by, const Buffer::Mark& mark) const {
  const std::lock_guard lock(sync_mutex_);
  const auto fences = fences_.find({mark.cluster, mark.agent});
  if (fences == fences_.end() || sync_launch_ != by.cluster->launch) return false;
  const auto after = std::lower_bound(fences->second.begin(), fences->second.end(), mark.tick);
  return after != fences->second.end() && comes_after(by, mark.cluster, {mark.agent, *after});
}

void GlobalMemory::release(const Thread& thread, const Foreign& foreign, const Tick* view,
                           const void* address) {
  const Cluster& cluster = thread.cta->cluster;
  const std::lock_guard lock(sync_mutex_);
  forget_earlier(cluster.launch);
  Foreign& to = published_[address];
  merge(to, foreign);
  merge(to, {{cluster.index, std::vector<Tick>(view, view + cluster.width)}});
}

Foreign GlobalMemory::acquire(const Cluster& cluster, const void* address) {
  const std::lock_guard lock(sync_mutex_);
  forget_earlier(cluster.launch);
  const auto found = published_.find(address);
  return found == published_.end() ? Foreign{} : found->second;
}

}  // namespace fa3::sim
