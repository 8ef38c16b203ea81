// SPDX-License-Identifier: BSD-3-Clause
// mbarrier.h — the side of mbarriers that copies use: bytes that arrive.
#pragma once

#include "sim/worker.h"

namespace fa3::sim {

// The live mbarrier at a window address of the CTA; a Violation when there is none, when its
// initialisation is not visible to the thread, or (tx) was not fenced for the async proxy.
Mbarrier& find_mbarrier(Cta& cta, Thread& by, const char* op, u32 address, bool tx, Where where);
// The CTA that an address names: its own, or one of the cluster.
Cta& cta_of(Thread& thread, u32& address, const char* op, Where where);
// complete_tx by a copy whose writes are `epoch`; `issuer` and where are for reports.
void complete_tx(Cta& cta, Mbarrier& bar, u32 bytes, Epoch epoch, const char* op, Where where);

// cp.async.mbarrier.arrive: one more pending arrival; and that arrival, when the thread's copies
// have landed, at `epoch`.
void add_pending(Mbarrier& bar);
void arrive_async(Cta& cta, Thread& thread, Mbarrier& bar, Epoch epoch, const char* op,
                  Where where);

}  // namespace fa3::sim
