// SPDX-License-Identifier: BSD-3-Clause
// tensor_limits.h — which tensors attention kernels that load by TMA and count in 32 bits take.
#pragma once

#include "core/problem.h"
#include "core/status.h"
#include "device/attn/kinds.h"
#include "plan/kernel_numbers.h"

namespace fa3::sm90 {

// Head dims: multiples of 16 bytes up to 256 columns. `name`: head_dim_qk or head_dim_v.
Status check_head_dim(const Problem& problem, const char* name, int64_t dim, fa3_dtype dtype);

// Strides of a tensor of the problem. ragged: of a kernel that addresses rows over all sequences.
Status check_strides(const Problem& problem, TensorId id, bool ragged);

// K and V of a cache: their strides, and places of rows in the units of cache_steps().
Status check_cache(const Problem& problem);

// How TMA finds rows of a tensor in a cache: the strides of a row and of its dimension y in
// elements, and the steps of y from a page or slot to the next and from row to row.
struct CacheSteps {
  int64_t row_stride = 0, y = 0, entry = 0, row = 0;
};
CacheSteps cache_steps(const Problem& problem, TensorId id);
// Keys of a sequence that lie next to each other wherever it begins, of a tile of so many.
int64_t cache_run(const Problem& problem, int64_t tile_kv);
// How tiles of so many keys come; least_run: the shortest run that TMA loads.
KvSource kv_source(const Problem& problem, int64_t tile_kv, int64_t least_run);

// The two tensors of an axis, which a ragged kernel addresses alike. `name`: "query" or "key".
Status check_axis(const Problem& problem, const char* name, TensorId a, TensorId b, bool ragged);

// How a ragged kernel addresses tensors without cu_seqlens: by rows over all sequences. The stride
// of a row in elements (that of a sequence when each has one row), and rows from one sequence's
// first to the next one's; by sequences, 1, where all lengths are equal.
int64_t ragged_row_stride(const SeqAxis& axis, const Layout& layout);
int64_t ragged_batch_rows(const Problem& problem, const SeqAxis& axis, const Layout& layout);

}  // namespace fa3::sm90
