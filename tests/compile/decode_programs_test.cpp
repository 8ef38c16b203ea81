// SPDX-License-Identifier: BSD-3-Clause
// decode_programs_test.cpp — the decode kernels stay in registers, and ptxas does not serialise
// their GEMMs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "plan/sm90/decode/configs.h"
#include "plan/sm90/decode/plan.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/fwd/variants.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"
#include "tests/kit/thorough.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using testing::Not;

// Loads from and stores to local memory.
size_t spills(const std::vector<kit::Instruction>& code) {
  return static_cast<size_t>(std::count_if(code.begin(), code.end(), [](const auto& i) {
    return i.opcode() == kit::kLoadLocal || i.opcode() == kit::kStoreLocal;
  }));
}

// of_loop: as many spills as a loop over tiles may have; nothing: there are none anywhere.
void expect_in_registers(const char* header, const std::vector<std::string>& all,
                         std::optional<size_t> of_loop = std::nullopt) {
  std::vector<std::string> expressions;
  for (size_t i = 0; i < all.size(); ++i)
    if (kit::due(i, 3)) expressions.push_back(all[i]);
  const kit::Translation compiled =
      kit::translate(std::string("#include \"") + header + "\"\n", expressions);
  EXPECT_THAT(compiled.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(compiled.log, Not(HasSubstr("warning")));
  for (size_t i = 0; i < expressions.size(); ++i) {
    const kit::Code code(compiled.cubin, compiled.symbols[i]);
    if (!of_loop) {
      EXPECT_EQ(spills(code.instructions()), 0u) << expressions[i];
    }
    for (const kit::Loop& loop : code.inner_wgmma_loops())
      EXPECT_LE(spills(code.in(loop)), of_loop.value_or(0)) << expressions[i];
  }
}

std::vector<DecodeConfig> widest() {
  std::vector<DecodeConfig> all;
  DecodeConfig c;
  c.score = ScoreKind::kScaled, c.ragged = true;
  for (const DecodeHeadDims& dims : kDecodeHeadDims)
    for (const DecodeTile& tile : kDecodeTiles) {
      if (dims.qk == 192 && tile.wide && tile.rows == kWgRows) continue;  // less than with 128
      if (tile.rows == 16 || tile.rows == 32 || (tile.rows == 64 && !tile.one_tile) ||
          (tile.rows == 128 && tile.one_tile))
        continue;
      c.wide = tile.wide, c.one_tile = tile.one_tile;
      all.push_back(with_tiles(c, dims, tile.rows));
    }
  all.push_back(with_alibi(decode_of(256, 64, ScoreKind::kSoftcap)));
  for (const int rows : {64, 128})
    all.push_back(with_alibi(wide_of(256, rows, ScoreKind::kSoftcap)));
  for (const int head_dim : {64, 128, 256}) all.push_back(with_parts(wide_of(head_dim, 128)));
  for (const auto& [head_dim, rows] : {std::pair(64, 8), {128, 32}, {256, 64}}) {
    DecodeConfig clusters = with_alibi(decode_of(head_dim, rows, ScoreKind::kScaled));
    clusters.one_tile = true;
    all.push_back(with_clusters(clusters, {head_dim, head_dim}));
  }
  all.push_back(with_clusters(with_cache(decode_of(128, 8), KvSource::kRows), {128, 128}));
  for (const KvSource kv : kKvSources)
    for (const DecodeConfig& config : {decode_of(128, 8), decode_of(256, 64), wide_of(128, 64),
                                       wide_of(128, 128), wide_of(256, 128)})
      if (kv != KvSource::kTensor) all.push_back(with_cache(config, kv));
  for (const KvSource kv : kKvSources)
    for (const DecodeConfig& c : {decode_of(64, 8), decode_of(128, 32), decode_of(256, 32)})
      all.push_back(with_appends(with_cache(c, kv)));
  for (const DecodeConfig& c : {decode_of(128, 8), decode_of(256, 64), wide_of(64, 128),
                                with_cache(wide_of(128, 64), KvSource::kRuns)})
    all.push_back(with_tree(c));
  // Of codes with copies of rows, whose producers take the most.
  for (const auto& [head_dim, rows] : {std::pair(128, 16), {128, 32}, {128, 64}, {256, 64}})
    all.push_back(with_kv8(with_cache(decode_of(head_dim, rows), KvSource::kRows)));
  for (const int head_dim : {128, 192}) {
    const DecodeHeadDims dims{head_dim, head_dim};
    const DecodeConfig c = with_kv8(decode_of(head_dim, 16));
    all.push_back(with_clusters(c, dims));
    all.push_back(with_tiles(c, dims, 16, 2));
  }
  for (const auto& [head_dim, rows] : {std::pair(64, 8), {128, 8}, {128, 32}, {256, 16}}) {
    const DecodeHeadDims dims{head_dim, head_dim};
    const DecodeConfig c = decode_of(head_dim, rows);
    all.push_back(with_appends(with_clusters(c, dims)));
    if (two_fit({}, dims, rows)) all.push_back(with_appends(with_tiles(c, dims, rows, 2)));
  }
  // Of those that are compiled ahead, which have chunks, every other without.
  for (size_t i = 0; i < all.size(); i += 2) all[i].chunks = false;
  return all;
}

TEST(DecodePrograms, StayInRegisters) {
  std::vector<std::string> decode, of_units, combine;
  for (const DecodeConfig& config : widest()) {
    // Many rows of 256 columns leave few registers: what is found for a unit spills where threads
    // copy rows, or each row has sums for parts of keys.
    const bool most = config.consumer_registers() > 0 && config.head_dim_v == 256;
    const bool few = config.kv == KvSource::kRows || config.part_tiles > 0;
    (most && few ? of_units : decode).push_back(decode_expression(config));
    combine.push_back(combine_expression(combine_of(config)));
  }
  expect_in_registers("device/sm90/decode/decode.cuh", decode);
  expect_in_registers("device/sm90/decode/decode.cuh", of_units, 0);
  expect_in_registers("device/sm90/decode/combine.cuh", combine);
}

// The forward from a cache: its producers look places up in the few registers that consumers leave.
// Three consumers have none left for looking up keys that may be missing: the end of a loop spills.
TEST(CachePrograms, StayInRegisters) {
  std::vector<std::string> all, of_three;
  for (const FwdRow& row : kFwdRows) {
    if (!row.takes(Operands::k16) || row.config.tile.head_dim_qk % 64 != 0) continue;
    for (const KvSource kv : {KvSource::kRuns, KvSource::kRows}) {
      if (row.config.tile.consumer_wgs == 3 &&
          (kv == KvSource::kRows || row.config.tile.head_dim_qk > 64))
        continue;
      const MaskKind mask = takes(row, MaskKind::kWindow) ? MaskKind::kWindow : MaskKind::kFull;
      (row.config.tile.consumer_wgs == 3 ? of_three : all)
          .push_back(fwd_expression(config_of(row, {.mask = mask, .ragged = true, .kv = kv}), {}));
    }
  }
  expect_in_registers("device/sm90/fwd/fwd.cuh", all);
  expect_in_registers("device/sm90/fwd/fwd.cuh", of_three, 1);
}

}  // namespace
}  // namespace fa3::sm90
