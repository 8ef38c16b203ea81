// SPDX-License-Identifier: BSD-3-Clause
// cp_async.cpp — cp.async: copies of a thread through the generic proxy that land when it waits.
#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "sim/copy.h"

namespace fa3::sim {
namespace {

// The data appears, once; who waited for it (or for the thread, on a barrier) may use it.
void land(Thread& thread, const PendingCopy& copy, Epoch epoch) {
  if (copy.landed != nullptr && std::exchange(*copy.landed, true)) return;
  Cta& cta = *thread.cta;
  const Accessor by{thread.clock, copy.landed != nullptr ? copy.tracked : epoch, copy.site, false};
  cta.shadow.end_copy(by, copy.to, copy.bytes);
  std::memcpy(cta.smem.get() + copy.to, copy.data, copy.bytes);
}

}  // namespace
}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void cp_async(u32 to, const void* from, u32 bytes, u32 source_bytes, Where where) {
  Thread& thread = enter("cp_async", where);
  Cta& cta = *thread.cta;
  if ((bytes != 4 && bytes != 8 && bytes != 16) || source_bytes > bytes ||
      reinterpret_cast<u64>(from) % bytes != 0)
    fail(cta, Rule::kAlignment, "",
         fmt::format("cp_async of {} bytes ({} from memory) from an address {} past a multiple of "
                     "16",
                     bytes, source_bytes, reinterpret_cast<u64>(from) % 16),
         "4, 8 or 16 bytes from a multiple of that size", {access_of(thread, "cp_async", where)});
  check_smem_range(cta, thread, "cp_async", to, bytes, bytes, where);
  PendingCopy copy{};
  copy.to = to - kSmemWindow;
  copy.bytes = bytes;
  copy.site = intern("cp_async", where);
  cta.copies_by_threads = true;
  if (source_bytes > 0) {
    const GlobalAccessor by{&cta.cluster, thread.clock, thread.epoch(), copy.site, false, false};
    cta.cluster.worker->grid.device.memory.read(by, from, source_bytes);
    std::memcpy(copy.data, from, source_bytes);
  }
  const Accessor by{thread.clock, thread.epoch(), copy.site, false};
  cta.shadow.begin_copy(by, copy.to, bytes);
  std::memset(cta.smem.get() + copy.to, 0xFF, bytes);  // nothing to be seen before the wait
  thread.copies_open.push_back(copy);
}

void cp_async_commit(Where where) {
  Thread& thread = enter("cp_async_commit", where);
  thread.copy_groups.push_back(std::move(thread.copies_open));
  thread.copies_open.clear();
}

void cp_async_wait(u32 pending, Where where) {
  Thread& thread = enter("cp_async_wait", where);
  if (pending == ~0u) {  // wait_all counts what was not committed, too
    thread.copy_groups.push_back(std::move(thread.copies_open));
    thread.copies_open.clear();
    pending = 0;
  }
  while (thread.copy_groups.size() > pending) {
    for (const PendingCopy& copy : thread.copy_groups.front()) land(thread, copy, thread.epoch());
    thread.copy_groups.erase(thread.copy_groups.begin());
  }
}

void cp_async_mbar_arrive(u32 bar, bool noinc, Where where) {
  const char* op = noinc ? "cp_async_mbar_arrive_noinc" : "cp_async_mbar_arrive";
  Thread& thread = enter(op, where);
  Cta& cta = *thread.cta;
  Mbarrier& mbar = find_mbarrier(cta, thread, op, bar, false, where);
  if (!noinc) add_pending(mbar);
  // They stay in their groups: a wait for those completes them, too.
  auto copies = std::make_shared<std::vector<PendingCopy>>();
  const Epoch epoch = thread.epoch();
  const auto take = [&](std::vector<PendingCopy>& group) {
    std::erase_if(group, [](const PendingCopy& copy) { return copy.landed && *copy.landed; });
    for (PendingCopy& copy : group) {
      if (copy.landed == nullptr) copy.landed = std::make_shared<bool>(false), copy.tracked = epoch;
      copies->push_back(copy);
    }
  };
  for (auto& group : thread.copy_groups) take(group);
  take(thread.copies_open);
  thread.tick()++;
  cta.cluster.worker->later(cta.cluster, [=, &thread, &cta, &mbar] {
    for (const PendingCopy& copy : *copies) land(thread, copy, epoch);
    arrive_async(cta, thread, mbar, epoch, op, where);
  });
}

}  // namespace fa3::twin
