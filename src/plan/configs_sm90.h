// SPDX-License-Identifier: BSD-3-Clause
// configs_sm90.h — the tile sizes of the Hopper kernels, and the only file that holds one. The
// first row that fits a problem is used; docs/tuning/fwd_sm90.md says how each was found. What it
// comes to for some 200 problems is in tests/golden/plan.csv.
#pragma once

#include "device/fwd_config.h"

namespace fa3 {

// A row fits head dims up to head_dim_qk and head_dim_v, its mask, and at most max_seqlen_q queries
// per sequence and head (0 = any number).
struct FwdRow {
  const char* name;
  int head_dim_qk, head_dim_v;
  int mask;  // −1 = any, else a FwdMask
  int max_seqlen_q;
  FwdConfig config;  // dtype, mask, score, ragged, schedule: filled in from the problem
};

inline constexpr int kAnyMask = -1;
inline constexpr int kFullMask = static_cast<int>(FwdMask::kFull);
inline constexpr int kCausalMask = static_cast<int>(FwdMask::kCausal);

// What every row shares.
inline constexpr SoftmaxVariant kFastSoftmax{.lazy_rescale = true, .integer_max = true};

// What two rows share.
inline constexpr FwdConfig kD96 = {
    .head_dim_qk = 96, .head_dim_v = 96, .tile_kv = 128, .q_stages = 2, .softmax = kFastSoftmax};
inline constexpr FwdConfig kD256Tile64 = {.head_dim_qk = 256,
                                          .head_dim_v = 256,
                                          .tile_kv = 64,
                                          .softmax = kFastSoftmax,
                                          .ping_pong = false,
                                          .o_in_q = true};

inline constexpr FwdRow kFwdRows[] = {
    {"d64 few queries",
     64,
     64,
     kAnyMask,
     64,
     {.head_dim_qk = 64,
      .head_dim_v = 64,
      .tile_kv = 128,
      .stages = 4,
      .consumer_wgs = 1,
      .softmax = kFastSoftmax,
      .ping_pong = false}},
    {"d64 causal",
     64,
     64,
     kCausalMask,
     0,
     {.head_dim_qk = 64,
      .head_dim_v = 64,
      .tile_kv = 128,
      .stages = 3,
      .consumer_wgs = 3,
      .q_stages = 2,
      .softmax = kFastSoftmax}},
    {"d64",
     64,
     64,
     kAnyMask,
     0,
     {.head_dim_qk = 64,
      .head_dim_v = 64,
      .tile_kv = 128,
      .stages = 3,
      .consumer_wgs = 3,
      .softmax = kFastSoftmax}},
    {"d96 short", 96, 96, kAnyMask, 2048, kD96},
    {"d96 full",
     96,
     96,
     kFullMask,
     0,
     {.head_dim_qk = 96,
      .head_dim_v = 96,
      .tile_kv = 96,
      .consumer_wgs = 3,
      .softmax = kFastSoftmax,
      .ping_pong = false}},
    {"d96", 96, 96, kAnyMask, 0, kD96},
    {"d128 few queries",
     128,
     128,
     kAnyMask,
     64,
     {.tile_kv = 128,
      .stages = 3,
      .consumer_wgs = 1,
      .softmax = kFastSoftmax,
      .ping_pong = false,
      .o_in_q = true}},
    {"d128",
     128,
     128,
     kAnyMask,
     0,
     {.tile_kv = 128, .q_stages = 2, .softmax = kFastSoftmax, .ping_pong = false}},
    {"d192 dv128 causal short",
     192,
     128,
     kCausalMask,
     512,
     {.head_dim_qk = 192, .tile_kv = 64, .stages = 3, .softmax = kFastSoftmax, .ping_pong = false}},
    {"d192 dv128",
     192,
     128,
     kAnyMask,
     0,
     {.head_dim_qk = 192,
      .tile_kv = 128,
      .softmax = kFastSoftmax,
      .ping_pong = false,
      .o_in_q = true}},
    {"d192 causal short",
     192,
     192,
     kCausalMask,
     2048,
     {.head_dim_qk = 192,
      .head_dim_v = 192,
      .tile_kv = 64,
      .softmax = kFastSoftmax,
      .ping_pong = false}},
    {"d192 short",
     192,
     192,
     kAnyMask,
     2048,
     {.head_dim_qk = 192,
      .head_dim_v = 192,
      .tile_kv = 64,
      .stages = 3,
      .softmax = kFastSoftmax,
      .ping_pong = false,
      .o_in_q = true}},
    {"d192",
     192,
     192,
     kAnyMask,
     0,
     {.head_dim_qk = 192,
      .head_dim_v = 192,
      .tile_kv = 112,
      .softmax = kFastSoftmax,
      .ping_pong = false,
      .o_in_q = true}},
    {"d256 short", 256, 256, kAnyMask, 512, kD256Tile64},
    {"d256 causal", 256, 256, kCausalMask, 0, kD256Tile64},
    {"d256",
     256,
     256,
     kAnyMask,
     0,
     {.head_dim_qk = 256,
      .head_dim_v = 256,
      .tile_kv = 80,
      .softmax = kFastSoftmax,
      .ping_pong = false,
      .o_in_q = true}},
};

// ---- Limits -------------------------------------------------------------------------------------

inline constexpr int kSmemLimit = 227 * 1024;  // bytes per CTA

// Beyond these ptxas 13.0 spills and serialises the products (found by trying).
constexpr int tile_register_limit(const FwdConfig& c) { return c.consumer_wgs == 3 ? 128 : 208; }

// Why a configuration cannot run; nullptr when it can.
constexpr const char* why_illegal(const FwdConfig& c) {
  if (size_of(c.dtype) != 2) return "dtype: F16 or BF16";
  if (c.head_dim_qk < 16 || c.head_dim_qk > 256 || c.head_dim_qk % 16 != 0)
    return "head_dim_qk: a multiple of 16 up to 256";
  if (c.head_dim_v < 16 || c.head_dim_v > 256 || c.head_dim_v % 16 != 0)
    return "head_dim_v: a multiple of 16 up to 256";
  if (c.tile_kv < 16 || c.tile_kv > 256 || c.tile_kv % 16 != 0)
    return "tile_kv: a multiple of 16 up to 256";
  if (c.consumer_wgs < 1 || c.consumer_wgs > 3) return "consumer_wgs: 1 to 3";
  if (c.stages < 2)
    return "stages: at least 2, since V of a tile is waited for before the one "
           "ahead of it is released";
  if (c.ping_pong && c.consumer_wgs == 1) return "ping_pong: takes 2 consumers";
  if (c.o_in_q && c.row_bytes_v() > c.row_bytes_qk()) return "o_in_q: O is larger than Q";
  if (c.q_stages < 1 || c.q_stages > 2) return "q_stages: 1 or 2";
  if (c.tile_registers() > tile_register_limit(c))
    return "tile_kv, head_dim_v: S, P and O take "
           "more registers than a thread has";
  if (c.smem_bytes() > kSmemLimit) return "tiles and stages: more than 227 KiB of shared memory";
  if (c.cluster != 1 && c.cluster != 2 && c.cluster != 4) return "cluster: 1, 2 or 4";
  if (c.tile_kv % (8 * c.cluster) != 0) return "tile_kv: a multiple of 8 rows per CTA of a cluster";
  if (c.cluster > 1 && c.schedule == FwdSchedule::kDynamic)
    return "cluster: its CTAs go on to their next tile together, which a dynamic schedule does not";
  if (!c.specialised && (c.schedule != FwdSchedule::kOneTile || c.cluster > 1))
    return "specialised: without it a CTA works on one tile, on its own";
  return nullptr;
}

constexpr bool all_legal() {
  for (const FwdRow& row : kFwdRows) {
    if (why_illegal(row.config) != nullptr) return false;
  }
  return true;
}
static_assert(all_legal(), "configs_sm90.h: a row breaks a limit");

}  // namespace fa3
