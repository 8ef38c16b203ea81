// SPDX-License-Identifier: BSD-3-Clause
// cache.h — problems whose keys lie in pages, slots or shared rows.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/verify/problem.h"

namespace fa3::verify {

// Whether k and v of a Config are a cache.
bool has_cache(const Config& c);

// "" when what a Config says of its cache fits the rest.
std::string contradiction_of_cache(const Config& c);

// The extents of k and v before their heads: (pages, page_size), (slots, rows) or (rows).
std::vector<int64_t> cache_rows(const Config& c);
// Columns of the page table.
int64_t max_pages_of(const Config& c);
// The bound of lengths that the arguments give, 0 = none; and the columns of a mask.
int64_t cache_max_seqlen(const Config& c);
int64_t cache_mask_columns(const Config& c);

// Moves the rows of dense k and v into a cache: pages in random order, some of them of two
// sequences unless own_pages; slots; begins of the seed. All other rows are NaN, and entries of the
// page table that nobody needs are out of range or name pages of others.
void move_to_cache(const Config& c, const MemoryOrder& memory, Tensors* tensors);

}  // namespace fa3::verify
