// SPDX-License-Identifier: BSD-3-Clause
// configs.h — the tile sizes of Hopper's backward, and the only file that holds one.
#pragma once

#include <iterator>
#include <string_view>

#include "device/sm90/bwd/config.h"
#include "runtime/launch_shape.h"

namespace fa3::sm90 {

// A row fits head dims up to those of its configuration; type, terms of scores and ragged are
// filled in. The first that fits is used, another where a tuning names it.
struct BwdRow {
  const char* name;
  BwdConfig config;
  // Where KV tiles visit on average so many Q tiles of a head or fewer, the main kernel sets sums
  // of dQ to 0. Measured: docs/tuning/bwd_sm90.md.
  int zero_tiles = 0;
};

inline constexpr BwdRow kBwdRows[] = {
    {"d64", {.head_dim_qk = 64, .head_dim_v = 64, .tile_q = 128}, 12},
    {"d64_terms", {.head_dim_qk = 64, .head_dim_v = 64, .tile_q = 64, .stages = 3}},
    {"d128", {.head_dim_qk = 128, .head_dim_v = 128, .tile_q = 64}, 1 << 30},
    {"d256", {.head_dim_qk = 256, .head_dim_v = 256, .tile_q = 64, .stages = 1}, 1 << 30},
};

constexpr BwdConfig bwd_config(std::string_view row) {
  const BwdRow* at = kBwdRows;
  while (at->name != row) ++at;
  return at->config;
}

// The variants of a row, as configurations, and those of them that the simulator has.
inline constexpr int kBwdVariants = 8;
constexpr BwdConfig bwd_variant(const BwdRow& row, int i) {
  BwdConfig c = row.config;
  c.dtype = i == 2 ? MmaType::kF16 : MmaType::kBf16;
  c.softcap = i == 3;
  c.functors = i == 4 || i == 6 || (i == 7 && c.split());
  c.attn_mask = i == 7 ? MaskTensor::kF32 : MaskTensor::kNone;
  c.deterministic = i == 5 || i == 6;
  c.ragged = i > 0, c.sets_zeros = i == 0 && row.zero_tiles > 0;
  return c;
}
constexpr bool is_simulated(const BwdRow& row, int i) {
  const BwdConfig& c = row.config;
  if (!c.staggered() && c.head_dim_qk == 64) return i == 3 || i == 4 || i > 5;  // terms of scores
  return (i < 3 || i == 5 || !c.staggered()) &&
         (!c.split() || i == 1 || i == 3 || i == 5 || i == 7);
}
constexpr bool is_simulated(const BwdConfig& config) {
  for (const BwdRow& row : kBwdRows)
    for (int i = 0; i < kBwdVariants; ++i)
      if (is_simulated(row, i) && bwd_variant(row, i) == config) return true;
  return false;
}

constexpr const char* why_illegal(const BwdConfig& c) {
  if (c.consumer_wgs != 2) return "consumer_wgs: 2, of which one starts after the other";
  if (size_of(c.dtype) != 2) return "dtype: F16 or BF16";
  if (c.head_dim_qk % 64 != 0 || c.head_dim_v % 64 != 0) return "head dims: multiples of 64";
  if (c.tile_q != 64 && !c.dq_by_rows()) return "tile_q: 64, or the keys of a tile";
  if ((c.softcap || c.functors || c.has_mask()) && c.staggered())
    return "softcap, functors, attn_mask: with tiles of 64 queries, for want of registers";
  // ptxas spills where two accumulators leave registers for neither.
  const bool narrow = c.head_dim_qk <= 64 && c.head_dim_v <= 64;
  if (!c.split() && !narrow && c.has_mask() && c.softcap + c.functors + c.adds_mask() > 1)
    return "attn_mask beside softcap or functors: with consumers of one gradient";
  if (c.deterministic && c.head_dim_v != c.head_dim_qk)
    return "deterministic: as many columns of V as of K, which bwd_bound reads alike";
  if (c.sets_zeros && (c.ragged || c.lists() || c.softcap))
    return "sets_zeros: with as many tiles in each head, a warp to do it, and no softcap "
           "(unmeasured)";
  if (c.smem_bytes() > static_cast<int>(kHopperSmemBytes))
    return "tiles and stages: more than 227 KiB of shared memory";
  return nullptr;
}
constexpr bool all_legal(const BwdRow* rows, int count) {
  for (int i = 0; i < count; ++i)
    if (why_illegal(rows[i].config) != nullptr) return false;
  return true;
}
static_assert(all_legal(kBwdRows, std::size(kBwdRows)), "bwd/configs.h: a row breaks a limit");

}  // namespace fa3::sm90
