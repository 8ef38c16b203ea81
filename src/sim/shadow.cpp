// SPDX-License-Identifier: BSD-3-Clause
// shadow.cpp — narrow accesses, crowds of readers, and what the reports of shared memory say.
#include "sim/shadow.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "sim/state.h"
#include "sim/worker.h"

namespace fa3::sim {

void Shadow::reset(u32 bytes) {
  granules_ = (bytes + kGranule - 1) / kGranule;
  Cell fresh{};
  fresh.flags = kUndeclared;
  cells_.assign(granules_, fresh);
  valid_.assign(granules_, 0);
  format_.assign(granules_, 0);
  split_.assign(granules_, 0);
  parts_.clear();
  crowds_.clear();
  free_crowds_.clear();
  free_parts_.clear();
  ordered_view_ = nullptr;
}

void Shadow::declare(u32 offset, u32 bytes) {
  const u32 end = std::min(granules_, (offset + bytes + kGranule - 1) / kGranule);
  for (u32 g = offset / kGranule; g < end; g++)
    cells_[g].flags = static_cast<u16>(cells_[g].flags & ~kUndeclared);
}

void Shadow::set_barrier(u32 offset, bool live) {
  u32 count = 0;
  Cell* part = first_part(offset, 8, count);
  for (u32 i = 0; i < count; i++)
    part[i].flags = static_cast<u16>(live ? part[i].flags | kBarrier : part[i].flags & ~kBarrier);
}

bool Shadow::initialised(u32 offset, u32 bytes) const {
  for (u32 i = offset; i < offset + bytes; i++)
    if (!(valid_[i / kGranule] >> (i % kGranule) & 1)) return false;
  return true;
}

// By the thread of the access, or by another that knew of it: a fence anywhere on the way.
bool Shadow::fenced(Epoch epoch, const Accessor& by) const {
  const auto& fences = cta_.cluster.thread(epoch.agent).shared_fences;
  const auto after = std::lower_bound(fences.begin(), fences.end(), epoch.tick);
  if (after != fences.end() && *after <= by.view[epoch.agent]) return true;
  if (!cta_.copies_by_threads) return false;
  if (by.warps == nullptr) return fenced_on_the_way(epoch, by.view);
  for (u32 warp = 0; warp < 4; ++warp)
    if (!fenced_on_the_way(epoch, by.warps + size_t{warp} * cta_.cluster.width)) return false;
  return true;
}

bool Shadow::fenced_on_the_way(Epoch epoch, const Tick* view) const {
  return std::ranges::any_of(cta_.threads, [&](const Thread& thread) {
    // A thread's later fences have seen what its earlier ones have.
    const auto behind = std::ranges::partition_point(thread.fence_views, [&](const auto& fence) {
      return fence[thread.agent] <= view[thread.agent];
    });
    return behind != thread.fence_views.begin() && epoch.before(std::prev(behind)->data());
  });
}

// The parts that an access of `bytes` at offset covers, splitting the cell as needed.
Shadow::Cell* Shadow::first_part(u32 offset, u32 bytes, u32& count) {
  const u32 granule = offset / kGranule;
  Cell& whole = cells_[granule];
  const u32 inside = offset % kGranule;
  const bool narrow = bytes % 4 != 0 || inside % 4 != 0;
  if (!(whole.flags & kSplit)) {
    if (bytes == kGranule) {
      count = 1;
      return &whole;
    }
    Part part;
    part.step = narrow ? 1 : 4;
    Cell copy = whole;
    part.cells.assign(kGranule / part.step, copy);
    if (copy.flags & kCrowded)  // each part has a crowd of its own
      for (size_t i = 1; i < part.cells.size(); i++) {
        crowds_.push_back(std::vector<Reader>(crowds_[copy.read[0].agent]));
        part.cells[i].read[0].agent = static_cast<u32>(crowds_.size() - 1);
      }
    if (free_parts_.empty()) {  // never more than granules, of which there are fewer than 2^16
      split_[granule] = static_cast<u16>(parts_.size());
      parts_.push_back(std::move(part));
    } else {
      split_[granule] = free_parts_.back();
      free_parts_.pop_back();
      parts_[split_[granule]] = std::move(part);
    }
    whole.flags |= kSplit;
  }
  Part& part = parts_[split_[granule]];
  if (narrow && part.step == 4) {
    std::vector<Cell> finer;
    for (const Cell& cell : part.cells)
      for (u32 i = 0; i < 4; i++) {
        finer.push_back(cell);
        if (i > 0 && (cell.flags & kCrowded)) {
          crowds_.push_back(std::vector<Reader>(crowds_[cell.read[0].agent]));
          finer.back().read[0].agent = static_cast<u32>(crowds_.size() - 1);
        }
      }
    part = {1, std::move(finer)};
  }
  count = std::max(bytes / part.step, 1u);
  return &part.cells[inside / part.step];
}

void Shadow::check_place(const Cell& cell, const Accessor& by, u32 offset) const {
  if (cell.flags & kUndeclared)
    fail(cta_, Rule::kOutOfBounds, cta_.name(offset),
         fmt::format("{} touches offset {} of shared memory, which is no member of the kernel's "
                     "shared-memory struct",
                     site(by.site).op, offset),
         "an address inside a member named by FA3_NAMED",
         {access_of(cta_.cluster, by.epoch.agent, by.site)});
  if (cell.flags & kBarrier)
    fail(cta_, Rule::kMbarrier, cta_.name(offset),
         fmt::format("{} touches the mbarrier {}", site(by.site).op, cta_.name(offset)),
         "data must not share memory with a live mbarrier; mbar_inval() it first",
         {access_of(cta_.cluster, by.epoch.agent, by.site)});
}

void Shadow::read_special(const Accessor& by, u32 offset, u32 bytes) {
  check_place(cells_[offset / kGranule], by, offset);
  u32 count = 0;
  Cell* cell = first_part(offset, bytes, count);
  for (u32 i = 0; i < count; i++) read_cell(cell[i], by, offset);
  if (!initialised(offset, bytes)) fail_uninitialised(by, offset);
}

void Shadow::write_special(const Accessor& by, u32 offset, u32 bytes) {
  check_place(cells_[offset / kGranule], by, offset);
  u32 count = 0;
  Cell* cell = first_part(offset, bytes, count);
  for (u32 i = 0; i < count; i++) {
    check_place(cell[i], by, offset);
    if (cell[i].flags & kCopying)
      fail_order(by, true, cell[i].write, cell[i].write_site, true, offset, true);
    if (cell[i].flags & kCrowded) {
      const u32 crowd = cell[i].read[0].agent;
      for (const Reader& reader : crowds_[crowd]) check_reader(reader, by, offset);
      free_crowds_.push_back(crowd);
      cell[i].read[0] = cell[i].read[1] = {};
    }
    write_cell(cell[i], by, offset);
  }
  // A full write makes the granule whole again.
  if (bytes == kGranule && (cells_[offset / kGranule].flags & kSplit)) {
    cells_[offset / kGranule] = *cell;
    free_parts_.push_back(split_[offset / kGranule]);
  }
  u16& valid = valid_[offset / kGranule];
  valid = static_cast<u16>(valid | ((1u << bytes) - 1) << (offset % kGranule));
}

void Shadow::read_cell(Cell& cell, const Accessor& by, u32 offset) {
  check_place(cell, by, offset);
  if (cell.flags & kCopying) fail_order(by, false, cell.write, cell.write_site, true, offset, true);
  check_write_before(cell, by, offset, true);
  if (!(cell.flags & kCrowded)) return add_reader(cell, by);
  auto& crowd = crowds_[cell.read[0].agent];
  const auto same = std::find_if(crowd.begin(), crowd.end(), [&](const Reader& reader) {
    return reader.epoch.agent == by.epoch.agent;
  });
  const Reader reader{by.epoch, by.site, !by.async};
  if (same != crowd.end())
    *same = reader;
  else
    crowd.push_back(reader);
}

void Shadow::check_reader(const Reader& reader, const Accessor& by, u32 offset) {
  if (!reader.epoch.before(by.view))
    fail_order(by, true, reader.epoch, reader.site, false, offset, false);
  if (by.async && reader.generic && !fenced(reader.epoch, by))
    fail_proxy(by, true, reader.epoch, reader.site, false, offset);
}

void Shadow::begin_copy(const Accessor& by, u32 offset, u32 bytes) {
  write(by, offset, bytes);
  u32 count = 0;
  for (Cell* cell = first_part(offset, bytes, count); count > 0; count--, cell++)
    cell->flags |= kCopying;
}

void Shadow::end_copy(const Accessor& by, u32 offset, u32 bytes) {
  u32 count = 0;
  for (Cell* cell = first_part(offset, bytes, count); count > 0; count--, cell++) {
    cell->flags = static_cast<u16>(cell->flags & ~kCopying);
    if (cell->write.agent == by.epoch.agent) cell->write = by.epoch;
  }
}

namespace {

// What the reader of a report should add, by the kinds of both sides. An asynchronous read that
// meets a write may have come too early, or the write did, to memory that was not free yet.
std::string missing_order(const Accessor& by, bool writes, const std::string& earlier,
                          bool earlier_writes) {
  const bool load = earlier.rfind("tma_load", 0) == 0 || earlier.rfind("bulk_load", 0) == 0;
  const bool store = earlier.rfind("tma_", 0) == 0 || earlier.rfind("bulk_", 0) == 0;
  const std::string now = site(by.site).op;
  if (earlier_writes && load && by.async && writes)
    return "a wait for the empty mbarrier before the copy, on which the readers of the earlier "
           "copy arrive";
  if (earlier_writes && load && by.async)
    return "a wait for the full mbarrier of the copy by each warp that uses the data; or, if older "
           "data is meant, wgmma_wait() before the arrive that lets the copy begin";
  if (earlier_writes && load)
    return "a wait for the full mbarrier of the copy by the reading thread";
  if (!earlier_writes && earlier == "wgmma")
    return "wgmma_wait() by the warpgroup that reads, then an arrive on the empty mbarrier (or a "
           "barrier) that the writer waits for and that counts every reader";
  if (!earlier_writes && store)
    return "bulk_wait_read() by the thread that issued the store, then a barrier";
  if (by.async && writes)
    return "an arrive on the empty mbarrier after the access (after a warp_sync() or barrier where "
           "another thread arrives), and a wait for it before the copy";
  if (by.async)
    return fmt::format(
        "a barrier between the write and the {}; or, if older data is meant, {} and "
        "a barrier before the write",
        now, now == "wgmma" ? "wgmma_wait()" : "bulk_wait_read() by its thread");
  return "a barrier between the two (mbarrier, named barrier or warp_sync), or other addresses";
}

}  // namespace

void Shadow::fail_order(const Accessor& by, bool writes, Epoch earlier, u16 earlier_site,
                        bool earlier_writes, u32 offset, bool copying) {
  const std::string name = cta_.name(offset);
  const char* now = site(by.site).op;
  const char* before = site(earlier_site).op;
  if (copying)
    fail(cta_, Rule::kRace, name,
         fmt::format("{} {} {} while a cp_async into it is in flight", now,
                     writes ? "writes" : "reads", name),
         "cp_async_wait() by the copying thread, then a barrier",
         {access_of(cta_.cluster, by.epoch.agent, by.site),
          access_of(cta_.cluster, earlier.agent, earlier_site)});
  fail(cta_, Rule::kRace, name,
       fmt::format("{} {} {} and nothing orders it after the {} by {}", now,
                   writes ? "writes" : "reads", name, earlier_writes ? "write" : "read", before),
       missing_order(by, writes, before, earlier_writes),
       {access_of(cta_.cluster, by.epoch.agent, by.site),
        access_of(cta_.cluster, earlier.agent, earlier_site)});
}

void Shadow::fail_proxy(const Accessor& by, bool writes, Epoch earlier, u16 earlier_site,
                        bool earlier_writes, u32 offset) {
  const std::string name = cta_.name(offset);
  fail(cta_, Rule::kProxyFence, name,
       fmt::format("{} {} {} through the async proxy after {} {} it through the generic proxy, "
                   "without a proxy fence between",
                   site(by.site).op, writes ? "writes" : "reads", name, site(earlier_site).op,
                   earlier_writes ? "wrote" : "read"),
       fmt::format("fence_proxy_async_shared() by the thread of {}, after it and before the "
                   "barrier{}",
                   site(earlier_site).op,
                   cta_.copies_by_threads ? ", or by one that has waited there" : ""),
       {access_of(cta_.cluster, by.epoch.agent, by.site),
        access_of(cta_.cluster, earlier.agent, earlier_site)});
}

void Shadow::fail_uninitialised(const Accessor& by, u32 offset) {
  const std::string name = cta_.name(offset);
  fail(cta_, Rule::kUninitialized, name,
       fmt::format("{} reads {}, which nothing has written", site(by.site).op, name),
       "a store or a completed copy into it before the read",
       {access_of(cta_.cluster, by.epoch.agent, by.site)});
}

}  // namespace fa3::sim
