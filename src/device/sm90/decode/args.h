// SPDX-License-Identifier: BSD-3-Clause
// args.h — what a launch of the decode kernel takes in addition to its configuration, and what the
// kernel that merges its parts takes.
#pragma once

#include "device/attn/mask.h"
#include "device/divider.h"
#include "device/ptx/memory.h"
#include "device/sm90/append/args.h"
#include "device/sm90/common/kv_cache.h"
#include "device/sm90/common/max_logit.h"
#include "device/sm90/common/sink.h"
#include "device/tensor_map.h"
#include "device/types.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// tree_mask: which of the sequence's last keys, one of each query, a query sees.
struct TreeArgs {
  const u32* words;  // two of each query
  i64 batch, row;    // strides in words

  // row: counted as first_row() does.
  FA3_DEV u64 bits(i32 b, i64 of_row) const {
    const u32* const at = words + b * batch + of_row * row;
    return ptx::ld_global_nc(at) | static_cast<u64>(ptx::ld_global_nc(at + 1)) << 32;
  }
};
// Does a query with these bits see a key that is the bit-th of the last ones? All before those.
FA3_HD constexpr bool tree_shows(u64 bits, i32 bit) {
  return bit < 0 || (bit < 64 && (bits >> bit & 1) != 0);
}

// How the work of a call is cut: alike for both kernels, which find the same parts.
struct DecodeShape {
  RowAxis q_axis, kv_axis;
  i32 most_q, most_kv;  // rows of a sequence that count at most, whatever lengths say
  bool beside;          // sequences of more queries, and rows of none, are another kernel's
  i32 batch, heads_kv;
  Divider group;  // query heads per KV head
  Band32 band;
  i32 ctas;         // of the decode kernel, the most that take part
  u32 most_parts;   // of a unit; 0: any
  Divider cluster;  // CTAs of a cluster
  KvCacheArgs cache;
  i32 fresh;  // keys that each sequence appends

  // Without `chunks` there are none.
  template <bool kChunks>
  FA3_HD constexpr auto band_of() const {
    if constexpr (kChunks) {
      return band;
    } else {
      return WholeBand32{band.left, band.right};
    }
  }
};

// Where rows of the outputs lie; strides in elements.
struct DecodeOutput {
  void* o;  // 16 bits or FP32
  i64 o_row, o_head, o_batch;
  float* lse;  // or null
  i64 lse_row, lse_head, lse_batch;
  i32 head_dim_v;  // of the tensor
  SinkArgs sinks;  // which finished rows have, and parts have not
  MaxLogitArgs max_logit;
};

// The parts of tiles that several CTAs share, two a CTA: normalised O, (slot, row, column) with the
// columns of the configuration, and its LSE, (slot, row). Of parts of a fixed number of keys all
// that a unit may have, O as it was added up, and in place of LSE RowTotal.
struct DecodeParts {
  float* o;
  float* lse;
  u32 row_tiles, per_unit;  // part_tiles: tiles of rows of a sequence, and parts of each, at most
  float scale_log2;         // of exponents
};

// What is appended; strides in elements, of which 16 bytes are whole numbers.
struct DecodeAppend {
  AppendTensor k_new, v_new, k, v;
  AppendTable table;  // of the operands' type
  i32 rotated;        // pairs of columns, the first ones of a row
  i32 head_dim_v;
  bool moves;  // each query has the position behind the one before, not all the same
};

// Scales of an E4M3 tensor, which all rows of a head of a sequence share.
struct DecodeScales {
  const float* data;  // null: all are 1
  i64 batch, head;    // strides

  FA3_DEV float of(i32 b, i32 h) const {
    return data == nullptr ? 1.f : ptx::ld_global_nc(data + b * batch + h * head);
  }
};

struct DecodeArgs {
  TensorMap k, v;  // as FwdArgs has them
  KvPlaces k_places, v_places;
  DecodeShape shape;
  const u16* q;
  i64 q_row, q_head, q_batch;  // strides in elements
  i32 head_dim_qk;             // of the tensor
  float score_factor;          // of ScoreFunction
  float scale_log2;            // of exponents
  const float* alibi_slopes;   // or null
  i64 slope_batch;
  float slope_factor;
  DecodeOutput out;
  DecodeParts parts;
  DecodeAppend append;
  TreeArgs tree;
  DecodeScales q_scale, k_scale, v_scale;
  bool q_scale_of_group;  // a scale of q for each KV head
};

struct CombineArgs {
  DecodeShape shape;
  bool waits;     // for the grid before also to read lengths: one of this call writes them
  u32 row_tiles;  // of a sequence, where CTAs count units; 0: they count those of decode()
  DecodeOutput out;
  DecodeParts parts;
  bool in_trees;  // rows may see none of a tree's keys
};

}  // namespace fa3::sm90
