// SPDX-License-Identifier: BSD-3-Clause
// tensor_maps.h — tensors as TMA sees them.
#pragma once

#include "core/problem.h"
#include "device/hopper/tile_layout.h"
#include "device/tensor_map.h"

namespace fa3::sm90 {

// A tensor as FwdArgs describes it to TMA: rows of one head, in boxes of one panel of the tile.
TensorMapSpec spec_of(void* base, const Problem& problem, TensorId id, const TileLayout& tile,
                      bool ragged);

// The same by rows of the tensor, wherever its sequences begin: {columns, row, head, batch entry}.
TensorMapSpec spec_of_rows(void* base, const Problem& problem, TensorId id, const TileLayout& tile);

}  // namespace fa3::sm90
