// SPDX-License-Identifier: BSD-3-Clause
// fill.h — writes the output rows that no sequence owns as empty rows, so that every element of
// every output is written. Shared by the host backends: their kernels write the rows of sequences
// and nothing else.
#pragma once

#include "core/problem.h"

namespace fa3 {

// Rows before the first sequence, between and after sequences, and beyond seqused: 0, and −inf in
// LSE. HostBackend::run calls it once, before the kernels.
void fill_unowned_rows(const Problem& problem, const Buffers& buffers);

// All rows of all outputs, for a problem in which no query sees a key.
void fill_all_rows(const Problem& problem, const Buffers& buffers);

}  // namespace fa3
