// SPDX-License-Identifier: BSD-3-Clause
// copy.cpp — the life of asynchronous copies, and bulk groups.
#include "sim/copy.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "sim/numbers.h"

namespace fa3::sim {

std::shared_ptr<Copy> Copy::issue(Thread& thread, const char* op, Where where) {
  Cta& cta = *thread.cta;
  const Cluster& cluster = cta.cluster;
  auto copy = std::make_shared<Copy>();
  copy->issuer = &thread;
  copy->cta = &cta;
  copy->op = op;
  copy->where = where;
  copy->site = intern(op, where);
  const u32 slot = cta.next_slot;
  cta.next_slot = (slot + 1) % kTmaSlots;
  cta.slot_ticks[slot] += 2;
  cta.slot_issuers[slot] = thread.ids.thread;
  copy->agent = cta.first_slot + slot;
  copy->read_tick = cta.slot_ticks[slot] - 1;
  copy->write_tick = cta.slot_ticks[slot];
  copy->known.assign(thread.clock, thread.clock + cluster.width);
  copy->issued = cluster.worker->step;
  thread.tick()++;
  return copy;
}

GlobalAccessor Copy::global(bool writes, bool atomic) const {
  return {&cta->cluster, known.data(), {agent, writes ? write_tick : read_tick},
          site,          true,         atomic};
}

void Copy::join_group() {
  bulk = std::make_shared<BulkOp>();
  bulk->slot_agent = agent;
  bulk->read_tick = read_tick;
  bulk->write_tick = write_tick;
  issuer->bulk_open.push_back(bulk);
}

void Copy::read_done() {
  bulk->read_done = true;
  if (issuer->waiting.on == Waiting::On::kBulk) cta->cluster.worker->wake(*issuer);
}

void Copy::write_done() {
  bulk->write_done = true;
  if (issuer->waiting.on == Waiting::On::kBulk) cta->cluster.worker->wake(*issuer);
}

void Copy::log(Cta& at, u32 offset) const {
  Worker& worker = *cta->cluster.worker;
  Trace* trace = worker.grid.device.options.trace;
  if (trace == nullptr) return;
  const std::string place = at.name(offset);
  trace->name_row(at.number(), Trace::kCopyRow + offset, "copies of " + place);
  trace->add({std::string(op) + " " + place, issued, worker.step, at.number(),
              Trace::kCopyRow + offset, text(where)});
}

u64 copy_clocks(Cta& cta, u64 bytes) {
  const u64 now = cta.cluster.worker->step;
  const u64 clocks = bytes / kCopyBytesPerClock;
  return cta.sm.copies.take(now, clocks) + clocks - now;
}

void check_smem_range(Cta& cta, Thread& by, const char* op, u32 address, u64 bytes, u32 alignment,
                      Where where) {
  const u32 offset = address - kSmemWindow;
  if (address < kSmemWindow || offset + bytes > cta.smem_bytes)
    fail(cta, Rule::kOutOfBounds, "",
         fmt::format("{} of {} bytes at offset {} of {} bytes of shared memory", op, bytes, offset,
                     cta.smem_bytes),
         "a range inside the CTA's shared memory", {access_of(by, op, where)});
  if (address % alignment != 0)
    fail(cta, Rule::kAlignment, cta.name(offset),
         fmt::format("{} at {}, {} past a multiple of {}", op, cta.name(offset),
                     address % alignment, alignment),
         fmt::format("shared memory aligned to {} bytes{}", alignment,
                     alignment > 128 ? ", where the swizzle pattern starts" : ""),
         {access_of(by, op, where)});
  // One copy stays in one member; elements of an array are one member here.
  const auto base = [](const std::string& name) { return name.substr(0, name.find('[')); };
  const Member* first = nullptr;
  for (const Member& member : cta.members) {
    const bool begins = offset >= member.offset && offset < member.offset + member.bytes;
    if (begins) first = &member;
    const u64 last = offset + bytes - 1;
    if (first == nullptr || last < member.offset || last >= member.offset + member.bytes) continue;
    if (base(member.name) != base(first->name))
      fail(cta, Rule::kOutOfBounds, first->name,
           fmt::format("{} of {} bytes begins in {} and ends in {}", op, bytes, cta.name(offset),
                       member.name),
           "a box of the size of its buffer", {access_of(by, op, where)});
  }
}

void check_atomics_allowed(Thread& thread, const char* op, Where where) {
  const Grid& grid = thread.cta->cluster.worker->grid;
  if (grid.clusters == 1 || grid.shape.interacting) return;
  fail(*thread.cta, Rule::kLaunch, "",
       fmt::format("{} lets CTAs meet in global memory, and the launch says that they do not", op),
       "LaunchShape::interacting", {access_of(thread, op, where)});
}

}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void bulk_commit(Where where) {
  if (omitted("bulk_commit", where)) return;
  Thread& thread = enter("bulk_commit", where);
  thread.bulk_groups.push_back(std::move(thread.bulk_open));
  thread.bulk_open.clear();
}

void bulk_wait(u32 pending, bool read_only, Where where) {
  const char* op = read_only ? "bulk_wait_read" : "bulk_wait";
  if (omitted(op, where)) return;
  Thread& thread = enter(op, where);
  auto& groups = thread.bulk_groups;
  const size_t count = groups.size() > pending ? groups.size() - pending : 0;
  for (size_t g = 0; g < count; g++)
    for (const auto& copy : groups[g]) {
      while (read_only ? !copy->read_done : !copy->write_done)
        thread.cta->cluster.worker->block(thread, {Waiting::On::kBulk, pending, 0});
      copy->waited = true;
      Tick& known = thread.clock[copy->slot_agent];
      known = std::max(known, read_only ? copy->read_tick : copy->write_tick);
    }
  thread.version++;
  if (!read_only) groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(count));
}

void bulk_load(u32 to, const void* from, u32 bytes, u32 bar, u16 multicast, Where where) {
  const char* op = multicast != 0 ? "bulk_load_multicast" : "bulk_load";
  Thread& thread = enter(op, where);
  if (reinterpret_cast<u64>(from) % 16 != 0 || bytes % 16 != 0 || bytes == 0)
    fail(*thread.cta, Rule::kAlignment, "",
         fmt::format("{} of {} bytes from an address {} past a multiple of 16", op, bytes,
                     reinterpret_cast<u64>(from) % 16),
         "a multiple of 16 bytes from a multiple of 16", {access_of(thread, op, where)});
  const auto copy = Copy::issue(thread, op, where);
  Cluster& cluster = thread.cta->cluster;
  for (u32 rank = 0; rank < cluster.ctas.size(); rank++) {
    u32 place = to, barrier = bar;
    if (multicast == 0) {
      if (rank != 0) break;
    } else {
      if (!(multicast >> rank & 1)) continue;
      place = (to & ((1u << kRankShift) - 1)) | (rank + 1) << kRankShift;
      barrier = (bar & ((1u << kRankShift) - 1)) | (rank + 1) << kRankShift;
    }
    Cta& cta = cta_of(thread, place, op, where);
    cta_of(thread, barrier, op, where);
    check_smem_range(cta, thread, op, place, bytes, 16, where);
    Mbarrier& mbar = find_mbarrier(cta, thread, op, barrier, true, where);
    const auto land = [=, &cta, &cluster, &mbar] {
      cluster.worker->grid.device.memory.read(copy->global(false, false), from, bytes);
      cta.shadow.fresh_view();
      cta.shadow.write(copy->writer(), place - kSmemWindow, bytes);
      std::memcpy(cta.smem.get() + place - kSmemWindow, from, bytes);
      copy->log(cta, place - kSmemWindow);
      complete_tx(cta, mbar, bytes, copy->writer().epoch, op, where);
    };
    cluster.worker->later(cluster, land, kCopyLatency + copy_clocks(cta, bytes));
  }
}

namespace {

// Reads shared memory at one moment and hands the bytes to `act` at a later one.
void store(Thread& thread, const char* op, void* to, u32 from, u32 bytes, bool atomic,
           const std::function<void(u8* to, const u8* from)>& act, Where where) {
  if (reinterpret_cast<u64>(to) % 16 != 0 || bytes % 16 != 0 || bytes == 0)
    fail(*thread.cta, Rule::kAlignment, "",
         fmt::format("{} of {} bytes to an address {} past a multiple of 16", op, bytes,
                     reinterpret_cast<u64>(to) % 16),
         "a multiple of 16 bytes to a multiple of 16", {access_of(thread, op, where)});
  check_smem_range(*thread.cta, thread, op, from, bytes, 16, where);
  if (atomic) check_atomics_allowed(thread, op, where);
  const auto copy = Copy::issue(thread, op, where);
  copy->join_group();
  Cluster& cluster = thread.cta->cluster;
  const auto read = [=, &cluster] {
    copy->cta->shadow.fresh_view();
    copy->cta->shadow.read(copy->reader(), from - kSmemWindow, bytes);
    const char* memory = copy->cta->smem.get() + (from - kSmemWindow);
    copy->data.assign(memory, memory + bytes);
    copy->read_done();
    cluster.worker->later(cluster, [=, &cluster] {
      cluster.worker->grid.device.memory.write(copy->global(true, atomic), to, bytes);
      act(static_cast<u8*>(to), copy->data.data());
      copy->log(*copy->cta, from - kSmemWindow);
      copy->write_done();
    });
  };
  cluster.worker->later(cluster, read, copy_clocks(*thread.cta, bytes));
}

}  // namespace

void bulk_store(void* to, u32 from, u32 bytes, Where where) {
  Thread& thread = enter("bulk_store", where);
  store(
      thread, "bulk_store", to, from, bytes, false,
      [bytes](u8* out, const u8* in) { std::memcpy(out, in, bytes); }, where);
}

void bulk_reduce_add(void* to, u32 from, u32 bytes, ScalarType type, Where where) {
  Thread& thread = enter("bulk_reduce_add", where);
  store(
      thread, "bulk_reduce_add", to, from, bytes, true,
      [bytes, type](u8* out, const u8* in) { reduce_add(out, in, bytes, type); }, where);
}

void bulk_copy_to_cluster(u32 to, u32 from, u32 bytes, u32 bar, Where where) {
  const char* op = "bulk_copy_to_cluster";
  Thread& thread = enter(op, where);
  Cta& target = cta_of(thread, to, op, where);
  cta_of(thread, bar, op, where);
  check_smem_range(*thread.cta, thread, op, from, bytes, 16, where);
  check_smem_range(target, thread, op, to, bytes, 16, where);
  Mbarrier& mbar = find_mbarrier(target, thread, op, bar, true, where);
  const auto copy = Copy::issue(thread, op, where);
  Cluster& cluster = thread.cta->cluster;
  cluster.worker->later(cluster, [=, &target, &mbar] {
    copy->cta->shadow.fresh_view();
    copy->cta->shadow.read(copy->reader(), from - kSmemWindow, bytes);
    target.shadow.fresh_view();
    target.shadow.write(copy->writer(), to - kSmemWindow, bytes);
    std::memcpy(target.smem.get() + to - kSmemWindow, copy->cta->smem.get() + from - kSmemWindow,
                bytes);
    complete_tx(target, mbar, bytes, copy->writer().epoch, op, where);
  });
}

}  // namespace fa3::twin
