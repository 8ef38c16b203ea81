// SPDX-License-Identifier: BSD-3-Clause
// args.h — what a launch of the forward kernel takes in addition to its configuration.
#pragma once

#include "device/attn/kinds.h"
#include "device/attn/tile_order.h"
#include "device/attn/tile_range.h"
#include "device/sm90/common/kv_cache.h"
#include "device/sm90/common/max_logit.h"
#include "device/sm90/common/sink.h"
#include "device/tensor_map.h"
#include "device/types.h"
#include "device/warp/element.h"
#include "device/warp/mask_tensor.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// Scales of one 8-bit tensor, or none: data = nullptr. That of row i of a sequence is at
// min(i / block_rows, blocks − 1), or at the row of the tensor.
struct FwdScale {
  const float* data;
  i64 batch, row, head;    // strides in elements
  i32 block_rows, blocks;  // block_rows 0: one scale for all rows
  i32 group_size;          // query heads per head of the scales
  bool by_total_row;
};

// Columns that share a scale, in as many blocks; block = 0: all do.
struct FwdColumns {
  i32 block, blocks;
};

// 8-bit V transposed tile by tile, each as TurnedTile lays it out: tiles of a head follow one
// another. A varlen sequence b begins at tile ⌊first row / keys⌋ + b, which leaves room for the
// partial tiles of those before.
struct VImage {
  u8* data;
  i64 batch, head;  // tiles from one's first to the next one's; varlen: batch = 0
  bool varlen;

  // Of a sequence that begins at row kv_begin of the tensor, the first tile.
  FA3_HD constexpr i64 first_tile(i32 b, i32 kv_head, i32 kv_begin, i32 keys) const {
    return b * batch + kv_head * head + (varlen ? kv_begin / keys + b : 0);
  }
};

struct FwdArgs {
  // Dimensions {head_dim, row, head, sequence}; ragged {head_dim, x, y, z, head}.
  TensorMap q, k, v, o;
  float* lse;                        // or null
  i64 lse_row, lse_head, lse_batch;  // strides in elements
  u32* next_tile;                    // 0 at the start; nullptr: CTA i takes tiles i, i + grid, …
  RowAxis q_axis, kv_axis;
  i32 batch, heads_q, group_size;  // group_size: query heads per KV head
  i32 left, right;                 // of band()
  float score_factor;              // of ScoreFunction
  float scale_log2;                // of RowSoftmax
  TileOrder order;  // of tiles of tile_q() rows; varlen queries: of the longest sequence
  ElementArgs elements;
  // 8 bits only.
  FwdScale q_scale, k_scale, v_scale;
  const float* v_offset;              // (batch, heads_kv, head_dim_v) or null
  i64 v_offset_batch, v_offset_head;  // strides in elements
  i32 head_dim_v;                     // of the tensor; also for o_f32
  // What k_offset adds to the scores of a row, (batch, heads, rows) or varlen (heads, rows); null =
  // nothing, or nobody notices.
  const float* score_offset;
  i64 score_offset_batch, score_offset_head;
  VImage v_image;
  // Instead of the map o: strides in elements.
  float* o_f32;
  i64 o_row, o_head, o_batch;
  FwdColumns q_columns, k_columns, v_columns;
  MaskTensorArgs mask;
  TensorMap mask_map;  // {key, row, head, batch entry}, where mask.by_tma
  KvCacheArgs cache;
  i32 skipped_rows;  // from a cache, varlen: sequences of up to so many are another kernel's
  KvPlaces k_places, v_places;
  float* part_o;  // with part_tiles: O of the parts so far, (CTA, consumer, 64 · head_dim_v)
  SinkArgs sinks;
  MaxLogitArgs max_logit;
  Chunks<i32> chunks;  // of band()

  template <MaskKind kMask>
  FA3_HD constexpr auto band() const {
    if constexpr (kMask == MaskKind::kChunk) {
      return Band32{{left, right}, chunks};
    } else {
      return WholeBand32{left, right};
    }
  }
};

}  // namespace fa3::sm90
