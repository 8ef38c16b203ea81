// SPDX-License-Identifier: BSD-3-Clause
// copy.h — one asynchronous copy by TMA or the bulk engine: the issuing thread, its clock at issue,
// and the agent that the copy's accesses belong to.
#pragma once

#include <memory>
#include <vector>

#include "sim/mbarrier.h"

namespace fa3::sim {

struct Copy {
  Thread* issuer;
  Cta* cta;  // of the issuer
  const char* op;
  Where where;
  u16 site;
  u32 agent;  // a slot of the CTA
  Tick read_tick, write_tick;
  std::vector<Tick> known;       // the issuer's clock at issue
  u64 issued;                    // step, for the event log
  std::shared_ptr<BulkOp> bulk;  // of a store
  std::vector<u8> data;          // of a store, between reading and writing

  static std::shared_ptr<Copy> issue(Thread& thread, const char* op, Where where);
  Accessor reader() const { return {known.data(), {agent, read_tick}, site, true}; }
  Accessor writer() const { return {known.data(), {agent, write_tick}, site, true}; }
  GlobalAccessor global(bool writes, bool atomic) const;
  // Adds the copy to the issuing thread's bulk group.
  void join_group();
  void read_done();
  void write_done();
  // Logs the complete copy, into or out of shared memory of `at` at that offset.
  void log(Cta& at, u32 offset) const;
};

// By the clock: how long a copy issued now takes to move its bytes between a CTA and memory.
u64 copy_clocks(Cta& cta, u64 bytes);
// Checks of the shared-memory side, at issue.
void check_smem_range(Cta& cta, Thread& by, const char* op, u32 address, u64 bytes, u32 alignment,
                      Where where);
// A Violation when the copy makes CTAs interact and the launch did not declare that.
void check_atomics_allowed(Thread& thread, const char* op, Where where);

}  // namespace fa3::sim
