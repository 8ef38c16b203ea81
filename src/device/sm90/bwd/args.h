// SPDX-License-Identifier: BSD-3-Clause
// args.h — what launches of the backward kernels take in addition to their configuration.
#pragma once

#include "device/attn/mask.h"
#include "device/ptx/vec.h"
#include "device/sm90/bwd/config.h"
#include "device/sm90/common/sink.h"
#include "device/tensor_map.h"
#include "device/types.h"
#include "device/warp/element.h"
#include "device/warp/mask_image.h"
#include "device/warp/mask_tensor.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// A tensor of 16-bit or FP32 elements: (b, i, h, c) at data + b·batch + i·row + h·head + c. Varlen:
// batch = 0, rows count from the tensor's first.
struct BwdTensor {
  void* data;  // null: an output that nobody asked for, an input that is absent
  i64 batch, row, head;
  bool f32;
};

// Tiles of queries, of each head one after another: dense ones by sequence; a varlen sequence b
// begins at tile ⌊first row / tile_q⌋ + b, which leaves room for the partial tiles of those before.
struct BwdTiles {
  i64 batch, head;  // tiles from one's first to the next one's; varlen: batch = 0
  bool varlen;

  FA3_HD constexpr i64 first(i32 b, i32 q_head, i32 q_begin, i32 tile_q) const {
    return b * batch + q_head * head + (varlen ? q_begin / tile_q + b : 0);
  }
};

// Of sums of dQ that the main kernel sets to 0 (dq_zeros.h).
struct DqZeroArgs {
  i32 ahead;   // KV heads from a CTA's to that whose sums it sets to 0; 0: bwd_delta sets all
  u32 tiles;   // of a KV head, of all its queries
  u32* taken;  // (sequence, KV head, tile): whether someone sets it to 0
  u32* set;    // (sequence, KV head): how many are 0
};

// Beside an added mask: rows whose LSE is too coarse to make weights of (attn/coarse_lse.h).
struct CoarseRowArgs {
  // (tile, 2, tile_q), of tiles that have such rows: the largest score, and ln Σ; 0 of other rows.
  // What LSE adds to S is 0 in such rows.
  float* rows;
  float* tiles;  // of each tile: 1 where it has such rows, else 0
};

struct BwdArgs {
  TensorMap q, k, v, dout;  // {head_dim, row, head, sequence}; ragged {head_dim, x, y, z, head}
  RowAxis q_axis, kv_axis;
  i32 batch, group_size;  // query heads per KV head
  u32 section_log2;       // of the KV heads of a section (work.h)
  i32 kv_rows;            // of the longest sequence
  i32 head_dim_qk, head_dim_v;
  // A head has one KV tile, which visits all Q tiles: what dq_sum holds is not added to.
  bool stores_dq;
  bool sums_dq;  // else nobody wants dQ, and there are no sums
  Band32 band;
  // P = exp2(x·scale_log2), x the score and its term of LSE, or with a softcap
  // exp2(tanh(score·score_factor)·scale_log2 − LSE·log2 e); where attn_mask is added,
  // exp(x·scale_log2 + mask), likewise.
  float scale_log2, score_factor;
  float unscale;  // 1 / scale_log2, with a softcap
  float scale;    // of dK
  BwdTiles tiles;
  // (tile, row_floats()): −LSE / scale as a term of S, LSE +∞ in rows that do not count, or with a
  // softcap LSE·log2 e; with functors ids and −slope·log2 e; −δ as a term of dP; deterministic dQ's
  // scale.
  float* stats;
  u32* dq_sum;       // (tile, dq_sums()): FP32, or deterministic integers
  u32* dq_flag;      // (tile, dq_flags())
  DqZeroArgs zeros;  // sets_zeros
  BwdTensor dk, dv;
  const i32* ids_kv;  // or null
  i64 id_kv_batch;
  MaskTensorArgs mask;  // of bool: its bits
  MaskImageView image;  // of what is added
  CoarseRowArgs coarse;
};

// Of keys and values: what bounds dQ (fixed.h).
struct BwdBoundArgs {
  BwdTensor k, v;
  RowAxis kv_axis;
  i32 batch, head_dim_qk, head_dim_v;
  ptx::Vec<u32, 4>* bounds;  // (sequence, KV head, entry): KeyBound
};

// δ = Σ O·dO − dLSE of each row; LSE; dQ's flags to 0, and those of its sums that the main kernel
// does not set.
struct BwdDeltaArgs {
  BwdTensor o, dout;
  const float *lse, *dlse;  // dlse: or null
  i64 lse_batch, lse_row, lse_head, dlse_batch, dlse_row, dlse_head;
  RowAxis q_axis;
  i32 batch, head_dim_v;
  BwdTiles tiles;
  float minus_unscale;  // −1 / scale of scores
  float* stats;
  u32* dq_sum;  // null: not set to 0
  u32* dq_flag;
  DqZeroArgs zeros;
  ElementArgs elements;            // of queries
  const ptx::Vec<u32, 4>* bounds;  // deterministic: as BwdBoundArgs
  i32 bound_entries, group_size;
  SinkArgs sinks;  // which leave less to dQ's bounds
};
// Where a mask is added: and what scores are made of again; `main` without its tensor maps.
struct BwdMaskedDeltaArgs : BwdDeltaArgs {
  BwdTensor q, k;
  BwdArgs main;
};
template <bool kAddsMask>
struct BwdDeltaArgsOf {
  using Type = BwdDeltaArgs;
};
template <>
struct BwdDeltaArgsOf<true> {
  using Type = BwdMaskedDeltaArgs;
};

// One axis of dattn_mask's tiles (KV tile fastest, then Q tile, head, batch entry). own: tiles of
// dattn_mask along it; all: tiles of scores. Where dattn_mask is summed along the axis, own is 1,
// and that tile sums over all.
struct GradientExtent {
  i32 own, all;
};
struct MaskGradientArgs {
  BwdArgs main;
  void* data;
  i64 batch, head, row;  // in elements
  bool f32, sum_rows, sum_keys;
  bool fours;      // four neighbouring keys from a multiple of 4 on are one access
  i32 rows, keys;  // 1: of a sum
  GradientExtent batches, heads, q_tiles, kv_tiles;
};

// dsinks from LSE and δ.
struct BwdSinksArgs {
  SinkArgs sinks;
  void* dsinks;  // (heads)
  FloatType type;
  const float* lse;
  i64 lse_batch, lse_row, lse_head;
  RowAxis q_axis;
  i32 batch;
  BwdTiles tiles;
  const float* stats;  // as BwdArgs has them, of tiles of tile_q rows; −δ of each at delta_at
  i32 tile_q, row_floats, delta_at;
};

// dQ from its sums.
struct BwdDqArgs {
  BwdTensor dq;
  RowAxis q_axis;
  i32 batch, head_dim_qk;
  float scale;
  BwdTiles tiles;
  const u32 *dq_sum, *dq_flag;
  const float* stats;
};

}  // namespace fa3::sm90
