// SPDX-License-Identifier: BSD-3-Clause
// cache.h — arguments that say where the keys of sequences lie in a cache.
#pragma once

#include "api/args.h"
#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// Whether k and v hold the rows of all sequences, which kv_begin finds.
bool has_packed_keys(const Args& args);

// page_table, kv_batch_idx and kv_begin: whether they fit the other arguments, each of which has
// been checked by itself.
Result<KvCache> read_cache(const Args& args);

// Rows that a sequence may have in pages, or more than any extent where that is too many.
int64_t rows_of_pages(const KvCache& cache);

}  // namespace fa3
