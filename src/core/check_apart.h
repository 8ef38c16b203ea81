// SPDX-License-Identifier: BSD-3-Clause
// check_apart.h — K and V in pages of the same memory: which rows meet is up to the page table.
#pragma once

#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// Views of pages may share elements, where each page of memory is used as one of K or as one of V.
// Of a call that appends: no row that it writes to k is a row of v that it names, and the reverse.
// Needs page_table, seqused_kv and kv_begin in host memory, and values that check_lengths() passed.
Status check_apart(const Problem& problem, const Buffers& buffers);

}  // namespace fa3
