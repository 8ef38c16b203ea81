// SPDX-License-Identifier: BSD-3-Clause
// configs.h — configurations of the forward kernel that the tests of this folder run: the building
// blocks of the table's rows, and what they are measured against.
#pragma once

#include <string>
#include <vector>

#include "plan/sm90/fwd/configs.h"
#include "tools/verify/problem.h"

namespace fa3::sim {

using namespace sm90;

// Small tiles: many of them in a short run.
constexpr FwdConfig small(MaskKind mask, bool ragged) {
  return {.tile = {.head_dim_qk = 64, .head_dim_v = 64, .kv = 32},
          .load = {.ragged = ragged},
          .scores = {.softmax = {.lazy_rescale = true, .test_first = true}},
          .mask = {.kind = mask}};
}
constexpr FwdConfig with_step(FwdConfig c, FwdStep step) {
  c.overlap.step = step;
  return c;
}
constexpr FwdConfig without_specialisation(FwdConfig c) {
  c.overlap.specialised = false;
  c.overlap.schedule = FwdSchedule::kOneTile;
  return c;
}
// O of 64 and 16 columns, which leave in two turns: the second is the shorter one.
constexpr FwdConfig with_uneven_parts(FwdConfig c) {
  c.tile.head_dim_v = 80;
  c.output.parts = 2;
  return c;
}
// 8-bit Q, K and V, which is transposed in the kernel, or before.
constexpr FwdConfig with_e4m3(FwdConfig c, int raw_v_stages) {
  c.types.qk = c.types.v = MmaType::kE4m3;
  c.load.raw_v_stages = raw_v_stages;
  c.load.v_image = raw_v_stages == 0;
  c.scores.softmax.p_log2 = 4;
  return c;
}
constexpr FwdConfig with_o_f32(FwdConfig c) {
  c.output.f32 = true;
  return c;
}
constexpr FwdConfig with_park(FwdConfig c, int tiles) {
  c.accumulate.park_tiles = tiles;
  return c;
}
constexpr FwdConfig with_flush(FwdConfig c, int columns) {
  c.accumulate.flush_columns = columns;
  return c;
}
constexpr FwdConfig with_scales(FwdConfig c, KvScales of) {
  c.scores.kv_scales = of;
  c.scores.kind = ScoreKind::kScaled;
  return c;
}
constexpr FwdConfig by_columns(FwdConfig c, KvScales of) {
  c = with_scales(c, of);
  c.scores.scale_columns = 32;
  c.overlap.ping_pong = false;
  return c;
}
constexpr FwdConfig with_int8(FwdConfig c) {
  c.types.qk = MmaType::kS8;
  return c;
}
// The types of a problem that such a kernel computes.
inline verify::Config in_types_of(const FwdConfig& c, verify::Config problem) {
  if (c.output.f32) problem.out_dtype = FA3_F32;
  if (!c.types.scaled()) return problem;
  problem.dtype = c.types.qk == MmaType::kS8 ? FA3_I8 : FA3_F8_E4M3;
  if (!c.output.f32) problem.out_dtype = FA3_BF16;
  if (!c.types.v8()) problem.v_dtype = FA3_BF16;
  problem.v_offset = c.types.v8();
  using Of = verify::Scales::Of;
  if (c.scores.column_scales()) {
    const bool by_key = c.scores.kv_scales == KvScales::kKeys;
    problem.q_scale = {Of::kBlocks, by_key ? 1 : 48, 32};
    problem.k_scale = {Of::kBlocks, by_key ? 1 : 0, 32};
    if (c.types.v8()) problem.v_scale = {Of::kBlocks, by_key ? 5 : 64, 32};
    return problem;
  }
  if (c.scores.kv_scales == KvScales::kTiles) {
    problem.k_scale = {Of::kBlocks, 64};
    problem.v_scale = {Of::kBlocks, 32};
  }
  if (c.scores.kv_scales == KvScales::kKeys) {
    problem.k_scale = {Of::kTokens};
    problem.v_scale = {Of::kBlocks, 5};
  }
  return problem;
}
// For ALiBi and sequence ids.
constexpr FwdConfig with_functors_of(FwdConfig c) {
  c.scores.kind = ScoreKind::kScaled;
  return c;
}

struct Variant {
  const char* name;
  FwdConfig config;
  bool functors = false;
};

// Variants that no row of the table has, uneven parts of O, 8 bits and functors; each for every
// mask, dense and ragged.
template <MaskKind kMask, bool kRagged>
inline constexpr Variant kVariants[] = {
    {"serial", with_step(small(kMask, kRagged), FwdStep::kSerial)},
    {"three stages", with_step(small(kMask, kRagged), FwdStep::kThreeStage)},
    {"unspecialised", without_specialisation(small(kMask, kRagged))},
    {"uneven parts", with_uneven_parts(small(kMask, kRagged))},
    {"o f32", with_o_f32(small(kMask, kRagged))},
    {"e4m3", with_e4m3(small(kMask, kRagged), 2)},
    {"parked", with_park(with_e4m3(small(kMask, kRagged), 0), 2)},
    {"flushed", with_flush(with_e4m3(small(kMask, kRagged), 0), 32)},
    {"tile scales",
     with_scales(with_flush(with_e4m3(small(kMask, kRagged), 0), 64), KvScales::kTiles)},
    {"key scales",
     with_scales(with_flush(with_e4m3(small(kMask, kRagged), 0), 64), KvScales::kKeys)},
    {"columns", by_columns(with_flush(with_e4m3(small(kMask, kRagged), 0), 32), KvScales::kTiles)},
    {"columns of keys",
     by_columns(with_flush(with_int8(with_e4m3(small(kMask, kRagged), 0)), 32), KvScales::kKeys)},
    {"int8", with_int8(with_e4m3(small(kMask, kRagged), 1))},
    {"int8 qk only", with_int8(small(kMask, kRagged))},
    {"functors", with_functors_of(small(kMask, kRagged)), true},
};

}  // namespace fa3::sim
