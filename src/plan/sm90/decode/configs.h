// SPDX-License-Identifier: BSD-3-Clause
// configs.h — head dims and tiles of decode, and the kernels that the simulator has: those of few
// head dims, packed rows and score functions, with lengths, which compute dense problems, too.
#pragma once

#include "device/sm90/common/part_keys.h"
#include "device/sm90/decode/config.h"

namespace fa3::sm90 {

// The first that a problem's fit into; TMA fills what tensors lack with zeros.
struct DecodeHeadDims {
  int qk, v;
};
inline constexpr DecodeHeadDims kDecodeHeadDims[] = {
    {64, 64}, {128, 128}, {192, 128}, {192, 192}, {256, 256}};

// Packed rows of a tile: few, whose GEMMs have keys as rows, or many; one tile of a sequence, or
// several.
struct DecodeTile {
  int rows;
  bool wide, one_tile;
};
inline constexpr DecodeTile kDecodeTiles[] = {
    {8, false, true},   {16, false, true}, {32, false, true}, {64, false, true},
    {64, false, false}, {64, true, true},  {128, true, true}, {128, true, false}};

inline constexpr int kMostRowsInTurns = 16;

// As many consumers as have registers for operands of E4M3 keys, O and scores: all rows each, but
// where heads are wide and rows many.
constexpr void set_turns(DecodeConfig& c, int ctas_per_sm) {
  c.in_turns = c.rows <= kMostRowsInTurns && c.part_tiles == 0 && (ctas_per_sm == 1 || c.clusters);
  if (c.in_turns) c.consumers = c.head_dim_qk <= 128 && ctas_per_sm == 1 ? 3 : 2;
}

// The configuration with these head dims and packed rows, and with all stages that shared memory
// holds. Tiles have more keys than 64 where registers hold their scores: of few rows, to have bytes
// enough in flight; of many, because what a tile takes besides its GEMMs is then shared by more.
constexpr DecodeConfig with_tiles(DecodeConfig c, const DecodeHeadDims& dims, int rows,
                                  int ctas_per_sm = 1) {
  c.head_dim_qk = dims.qk, c.head_dim_v = dims.v;
  c.rows = rows;
  c.tile_kv = kWgRows;
  static_assert(kPartTileKv == kWgRows);  // parts keep it
  if (c.wide) {
    c.consumers = rows / kWgRows;
    if (dims.v <= 128 && c.part_tiles == 0) c.tile_kv = 2 * kWgRows;
  } else {
    c.consumers = rows == kMostNarrowRows ? 2 : 1;
    if (c.kv8) set_turns(c, ctas_per_sm);
    const int twice = rows == kMostNarrowRows && dims.qk == 128 ? 2 : 1;
    const bool few = c.kv8 && rows <= kMostRowsInTurns;
    const int pair = few ? kDecodePairBytes / 2 : kDecodePairBytes * (c.kv8 ? 1 : twice);
    while (c.part_tiles == 0 && c.k_tile().bytes() + c.v_tile().bytes() < pair)
      c.tile_kv += kWgRows;
  }
  c.stages = DecodeConfig{}.stages;
  c.ctas_per_sm = ctas_per_sm;
  const int turns = c.in_turns ? c.consumers : 1;
  c.stages -= c.stages % turns;
  while (c.smem_bytes() > decode_smem_bytes(ctas_per_sm)) c.stages -= turns;
  return c;
}
// So many packed rows of a tile, 64 or 128, as the rows of GEMMs.
constexpr DecodeConfig wide_with(DecodeConfig c, const DecodeHeadDims& dims, int rows) {
  c.wide = true;
  return with_tiles(c, dims, rows);
}

// Whether two CTAs fit on an SM, with registers and stages enough.
constexpr bool two_fit(const DecodeConfig& like, const DecodeHeadDims& dims, int rows) {
  const int most = !like.kv8 ? 32 : dims.qk > 192 ? 8 : 16;
  DecodeConfig c;
  c.part_tiles = like.part_tiles, c.kv8 = like.kv8;
  return rows <= most && with_tiles(c, dims, rows, 2).stages >= 2;
}

// Whether clusters may share units; with two CTAs on an SM, where they fit: the next call's begin
// beside the last of this one's.
constexpr bool can_have_clusters(const DecodeConfig& c) {
  return c.one_tile && !c.wide && c.part_tiles == 0 && (c.in_turns || !c.kv8);
}
constexpr DecodeConfig with_clusters(DecodeConfig c, const DecodeHeadDims& dims) {
  c.clusters = true;
  return with_tiles(c, dims, c.rows, two_fit(c, dims, c.rows) ? 2 : 1);
}

constexpr DecodeConfig decode_of(int head_dim, int rows, ScoreKind score = ScoreKind::kPlain) {
  DecodeConfig c;
  c.score = score;
  c.ragged = c.chunks = true;           // they compute others, too
  c.one_tile = rows < kMostNarrowRows;  // else any number
  return with_tiles(c, {head_dim, head_dim}, rows);
}
constexpr DecodeConfig wide_of(int head_dim, int rows, ScoreKind score = ScoreKind::kPlain) {
  const DecodeConfig c = decode_of(head_dim, rows, score);
  return wide_with(c, {head_dim, head_dim}, rows);
}
constexpr DecodeConfig with_alibi(DecodeConfig c) {
  c.alibi = true;
  return c;
}
constexpr DecodeConfig with_parts(DecodeConfig c) {
  c.part_tiles = kPartTiles;
  return with_tiles(c, {c.head_dim_qk, c.head_dim_v}, c.rows);
}
constexpr DecodeConfig with_cache(DecodeConfig c, KvSource kv) {
  c.kv = kv;
  return c;
}
constexpr DecodeConfig with_f32(DecodeConfig c) {
  c.o_f32 = true;
  return c;
}
constexpr DecodeConfig with_tree(DecodeConfig c) {
  c.tree = true;
  return c;
}
constexpr DecodeConfig with_kv8(DecodeConfig c, bool q8 = false) {
  c.kv8 = true, c.q8 = q8;
  return with_tiles(c, {c.head_dim_qk, c.head_dim_v}, c.rows);
}
constexpr DecodeConfig with_f16(DecodeConfig c) {
  c.dtype = MmaType::kF16;
  return c;
}

// Two CTAs on an SM have registers for that where rows are few.
constexpr DecodeConfig with_appends(DecodeConfig c) {
  constexpr int kFewRows = 16;
  c.appends = true;
  const int most = c.rows > kFewRows ? 1 : c.ctas_per_sm;
  return with_tiles(c, {c.head_dim_qk, c.head_dim_v}, c.rows, most);
}

inline constexpr DecodeConfig kDecodeAhead[] = {
    decode_of(64, 16),
    decode_of(64, 16, ScoreKind::kSoftcap),
    with_alibi(decode_of(64, 16, ScoreKind::kScaled)),
    with_f32(decode_of(64, 16)),
    decode_of(64, 64),
    wide_of(64, 64),
    wide_of(64, 128),
    with_alibi(wide_of(64, 64, ScoreKind::kSoftcap)),
    with_f32(wide_of(64, 128)),
    with_f16(decode_of(128, 8)),
    decode_of(128, 8),
    decode_of(128, 32),
    wide_of(128, 128),
    decode_of(256, 16),
    wide_of(256, 64),
    with_cache(decode_of(64, 16), KvSource::kTiles),
    with_cache(decode_of(64, 16), KvSource::kRuns),
    with_cache(decode_of(64, 16), KvSource::kRows),
    with_cache(wide_of(64, 128), KvSource::kTiles),
    with_cache(wide_of(64, 128), KvSource::kRuns),
    with_cache(wide_of(64, 128), KvSource::kRows),
    with_cache(decode_of(128, 8), KvSource::kRuns),
    with_parts(decode_of(64, 16)),
    with_parts(wide_of(64, 128)),
    with_cache(with_parts(decode_of(64, 16)), KvSource::kRuns),
    with_appends(decode_of(64, 16)),
    with_appends(with_cache(decode_of(64, 16), KvSource::kRuns)),
    with_tree(decode_of(64, 16)),
    with_tree(decode_of(64, 64)),
    with_tree(wide_of(64, 128)),
    with_tree(with_cache(decode_of(64, 16), KvSource::kRuns)),
    with_tree(with_cache(wide_of(64, 128), KvSource::kRuns)),
    with_kv8(decode_of(64, 16)),
    with_kv8(decode_of(64, 64)),
    with_kv8(decode_of(128, 8)),
    with_kv8(decode_of(128, 8), true),
    with_kv8(with_cache(decode_of(64, 16), KvSource::kRuns)),
    with_kv8(with_cache(decode_of(64, 16), KvSource::kRows)),
    with_kv8(with_cache(decode_of(64, 64), KvSource::kRuns)),
    with_kv8(with_cache(decode_of(64, 16), KvSource::kRuns), true),
    with_kv8(with_f16(decode_of(64, 16))),
};

}  // namespace fa3::sm90
