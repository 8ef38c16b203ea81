// SPDX-License-Identifier: BSD-3-Clause
// tensor_maps.h — tensors as TMA sees them, and what kernels read themselves.
#pragma once

#include <initializer_list>

#include "core/problem.h"
#include "core/status.h"
#include "device/hopper/tile_layout.h"
#include "device/tensor_map.h"
#include "device/warp/element.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// UNSUPPORTED for the first of the tensors that lies where neither TMA nor bulk copies nor loads of
// 16 bytes can read or write it; absent ones, and keys that nobody reads, lie anywhere.
Status check_tma_addresses(const Problem& problem, const Buffers& buffers,
                           std::initializer_list<TensorId> ids);

// A tensor as FwdArgs describes it to TMA: rows of one head, in boxes of one panel of the tile.
TensorMapSpec spec_of(void* base, const Problem& problem, TensorId id, const TileLayout& tile,
                      bool ragged);

// The same by rows of the tensor, wherever its sequences begin: {columns, row, head, batch entry}.
TensorMapSpec spec_of_rows(void* base, const Problem& problem, TensorId id, const TileLayout& tile);

// The lengths of the sequences of a tensor's axis. ragged: of a kernel that addresses its rows over
// all sequences; others count rows of one.
RowAxis axis_of(const Problem& problem, TensorId id, const Buffers& buffers, bool ragged);

// Tensors of functors, and into which units slopes are converted.
ElementArgs elements_of(const Problem& problem, const Buffers& buffers, float slope_factor);

}  // namespace fa3::sm90
