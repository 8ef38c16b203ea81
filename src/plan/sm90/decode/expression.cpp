// SPDX-License-Identifier: BSD-3-Clause
// expression.cpp — configurations of the decode kernels as the text that NVRTC compiles and the
// simulator finds.
#include <fmt/format.h>

#include "plan/sm90/decode/plan.h"
#include "plan/sm90/fwd/names.h"

namespace fa3::sm90 {

namespace {

std::string flags_text(const auto& config) {
  std::string text = config.appends ? ", .appends = true" : "";
  if constexpr (requires { config.tree; })
    if (config.tree) text += ", .tree = true";
  if (config.chunks) text += ", .chunks = true";
  if constexpr (requires { config.kv8; }) {
    if (config.kv8) text += ", .kv8 = true";
    if (config.in_turns) text += ", .in_turns = true";
    if (config.q8) text += ", .q8 = true";
  }
  return text;
}

}  // namespace

std::string decode_expression(const DecodeConfig& c) {
  return fmt::format(
      "fa3::sm90::decode<fa3::sm90::DecodeConfig{{.dtype = fa3::MmaType::{}, "
      ".score = fa3::ScoreKind::{}, .alibi = {}, .o_f32 = {}, .ragged = {}, "
      ".kv = fa3::KvSource::{}, .head_dim_qk = {}, .head_dim_v = {}, .rows = {}, "
      ".one_tile = {}, .tile_kv = {}, .stages = {}, .consumers = {}, .ctas_per_sm = {}, "
      ".part_tiles = {}, .wide = {}, .clusters = {}{}}}>",
      name_of(c.dtype).enumerator, name_of(c.score).enumerator, c.alibi, c.o_f32, c.ragged,
      name_of(c.kv).enumerator, c.head_dim_qk, c.head_dim_v, c.rows, c.one_tile, c.tile_kv,
      c.stages, c.consumers, c.ctas_per_sm, c.part_tiles, c.wide, c.clusters, flags_text(c));
}

std::string combine_expression(const CombineConfig& c) {
  return fmt::format(
      "fa3::sm90::combine<fa3::sm90::CombineConfig{{.dtype = fa3::MmaType::{}, .o_f32 = {}, "
      ".ragged = {}, .from_cache = {}, .head_dim_v = {}, .rows = {}, .one_tile = {}, "
      ".tile_kv = {}, .part_tiles = {}{}}}>",
      name_of(c.dtype).enumerator, c.o_f32, c.ragged, c.from_cache, c.head_dim_v, c.rows,
      c.one_tile, c.tile_kv, c.part_tiles, flags_text(c));
}

}  // namespace fa3::sm90
