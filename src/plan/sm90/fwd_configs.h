// SPDX-License-Identifier: BSD-3-Clause
// fwd_configs.h — the tile sizes of the Hopper kernels, and the only file that holds one. The
// first row that fits a problem is used; docs/tuning/fwd_sm90.md says how each was found. The
// plans of some 200 problems are in tests/golden/plan.csv.
#pragma once

#include "device/sm90/fwd/config.h"

namespace fa3::sm90 {

// A row fits head dims up to config.head_dim_qk and config.head_dim_v, its masks, and at most
// max_seqlen_q queries per sequence and head (0 = any number); with three consumers, problems
// without functors for which tiles of 192 queries pay (fwd_plan.cpp).
struct FwdRow {
  const char* name;
  unsigned masks;  // 1 << MaskKind of each
  int max_seqlen_q;
  FwdConfig config;  // dtype, mask, score, ragged: filled in from the problem
};

constexpr unsigned mask_bit(MaskKind mask) { return 1u << static_cast<unsigned>(mask); }
inline constexpr unsigned kFull = mask_bit(MaskKind::kFull);
inline constexpr unsigned kCausal = mask_bit(MaskKind::kCausal);
inline constexpr unsigned kWindow = mask_bit(MaskKind::kWindow);
inline constexpr unsigned kMasked = kCausal | kWindow;
inline constexpr unsigned kAnyMask = kFull | kMasked;

// The fields in which rows differ; all else is as FwdConfig has it.
struct FwdTile {
  int qk, v;  // head dims
  int tile_kv, stages, consumers, q_stages;
  bool ping_pong;
  int o_parts;  // of O's own buffer; 0: O leaves through Q's
  bool test_first = true;
};
constexpr FwdConfig config_of(const FwdTile& t) {
  FwdConfig c;
  c.head_dim_qk = t.qk;
  c.head_dim_v = t.v;
  c.tile_kv = t.tile_kv;
  c.stages = t.stages;
  c.consumer_wgs = t.consumers;
  c.q_stages = t.q_stages;
  c.softmax = {.lazy_rescale = true, .test_first = t.test_first};
  c.ping_pong = t.ping_pong;
  c.o_in_q = t.o_parts == 0;
  c.o_parts = max(t.o_parts, 1);
  return c;
}

// clang-format off
inline constexpr FwdRow kFwdRows[] = {
// name                  masks     most q         qk  v   kv  st wgs q ping_pong o test_first
  {"d64 few rows",    kAnyMask, 64,   config_of({ 64,  64, 128, 4, 1, 1, false, 1})},
  {"d64 full",           kFull,    0,    config_of({ 64,  64, 128, 3, 3, 2,  true, 1, false})},
  {"d64 masked",         kMasked,  0,    config_of({ 64,  64, 128, 3, 3, 2,  true, 1})},
  {"d64",                kAnyMask, 0,    config_of({ 64,  64, 128, 3, 2, 2,  true, 1})},
  {"d96 full",           kFull,    0,    config_of({ 96,  96,  96, 4, 3, 1, false, 1})},
  {"d96 masked short",   kMasked,  1024, config_of({ 96,  96,  64, 4, 3, 2, false, 1})},
  {"d96 masked",         kMasked,  0,    config_of({ 96,  96,  96, 3, 3, 2, false, 1})},
  {"d96",                kAnyMask, 0,    config_of({ 96,  96, 128, 2, 2, 2,  true, 1})},
  {"d128 few rows",   kAnyMask, 64,   config_of({128, 128, 128, 3, 1, 1, false, 0})},
  {"d128 full",          kFull,    0,    config_of({128, 128,  80, 3, 3, 1, false, 0})},
  {"d128 masked short",  kMasked,  1024, config_of({128, 128,  64, 4, 3, 2, false, 0})},
  {"d128 window",        kWindow,  0,    config_of({128, 128,  64, 4, 3, 1, false, 1})},
  {"d128 causal",        kCausal,  4096, config_of({128, 128,  64, 4, 3, 1, false, 1})},
  {"d128 causal long",   kCausal,  0,    config_of({128, 128,  80, 3, 3, 1, false, 1})},
  {"d128",               kAnyMask, 0,    config_of({128, 128, 128, 2, 2, 2, false, 1})},
  {"d192 dv128 masked",  kMasked,  0,    config_of({192, 128,  64, 3, 3, 1, false, 2})},
  {"d192 dv128",         kAnyMask, 0,    config_of({192, 128, 128, 2, 2, 1, false, 2})},
  {"d192 masked short",  kMasked,  2048, config_of({192, 192,  64, 2, 2, 1, false, 1})},
  {"d192 short",         kFull,    2048, config_of({192, 192,  64, 3, 2, 1, false, 3})},
  {"d192",               kAnyMask, 0,    config_of({192, 192,  96, 2, 2, 1, false, 3})},
  {"d256",               kAnyMask, 0,    config_of({256, 256,  64, 2, 2, 1, false, 2})},
};
// clang-format on

// A row for functors, which keep values per row and key in addition to S, O and P: with more tile
// registers than this, ptxas spills. hides_keys: one of them is a mask.
constexpr FwdConfig with_functors(FwdConfig c, bool hides_keys) {
  while (c.tile_registers() > (hides_keys ? 168 : 176)) c.tile_kv -= 16;
  return c;
}

// ---- Limits -------------------------------------------------------------------------------------

inline constexpr int kSmemLimit = 227 * 1024;  // bytes per CTA

// Beyond these ptxas 13.0 spills and serialises the GEMMs (found by trying).
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
  if (c.softmax.test_first && !c.softmax.lazy_rescale) return "test_first: takes lazy_rescale";
  if (c.o_in_q && !c.o_fits_q()) return "o_in_q: O is larger than Q";
  if (c.o_parts < 1 || c.o_parts > c.o_tile().panels() || (c.o_in_q && c.o_parts > 1))
    return "o_parts: 1 to the panels of O; 1 with o_in_q";
  if (c.q_stages < 1 || c.q_stages > 2) return "q_stages: 1 or 2";
  if (c.tile_registers() > tile_register_limit(c))
    return "tile_kv, head_dim_v: S, P and O take "
           "more registers than a thread has";
  if (c.smem_bytes() > kSmemLimit) return "tiles and stages: more than 227 KiB of shared memory";
  if (!c.specialised && (c.schedule != FwdSchedule::kOneTile || c.step != FwdStep::kTwoStage))
    return "specialised: without it a CTA works on one tile, in two stages";
  return nullptr;
}

constexpr bool all_legal() {
  for (const FwdRow& row : kFwdRows) {
    if (why_illegal(row.config) != nullptr) return false;
    if (row.config.consumer_wgs < 3 && why_illegal(with_functors(row.config, true)) != nullptr)
      return false;
  }
  return true;
}
static_assert(all_legal(), "fwd_configs.h: a row breaks a limit");

}  // namespace fa3::sm90
