// SPDX-License-Identifier: BSD-3-Clause
// tensor_maps_sm90.h — tensors as TMA sees them; rows and caches as Hopper kernels address them.
#pragma once

#include <initializer_list>

#include "backend/launch/arguments.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/attn/kinds.h"
#include "device/hopper/tile_layout.h"
#include "device/sm90/common/kv_cache.h"
#include "device/tensor_map.h"

namespace fa3::sm90 {

// UNSUPPORTED for the first of the tensors that lies where neither TMA nor bulk copies nor loads of
// 16 bytes can read or write it; absent ones, and keys that nobody reads, lie anywhere.
Status check_tma_addresses(const Problem& problem, const Buffers& buffers,
                           std::initializer_list<TensorId> ids);

// A tensor as FwdArgs describes it to TMA: rows of one head, in boxes of one panel of the tile.
TensorMapSpec spec_of(void* base, const Problem& problem, TensorId id, const TileLayout& tile,
                      bool ragged);

// K or V in a cache, in boxes of a panel of a run of keys (sm90/common/kv_cache.h).
TensorMapSpec spec_of_cache(void* base, const Problem& problem, TensorId id,
                            const TileLayout& tile);

// The same by rows of the tensor, wherever its sequences begin: {columns, row, head, batch entry}.
TensorMapSpec spec_of_rows(void* base, const Problem& problem, TensorId id, const TileLayout& tile);

// lengths_of(), for a kernel that addresses rows over all sequences (ragged), or rows of one.
RowAxis axis_of(const Problem& problem, TensorId id, const Buffers& buffers, bool ragged);

// Where sequences find their keys, in tiles of so many. held: how many of a tile's runs a lane of
// the kernel knows (held_runs()).
KvCacheArgs cache_of(const Problem& problem, const Buffers& buffers, KvSource source, int tile_kv,
                     int held);

// The same for a kernel that asks for one row after another.
KvCacheArgs cache_of(const Problem& problem, const Buffers& buffers);

// Where rows of K or V of 16 bits lie.
KvPlaces places_of(const Problem& problem, const Buffers& buffers, TensorId id);

}  // namespace fa3::sm90
