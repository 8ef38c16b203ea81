// SPDX-License-Identifier: BSD-3-Clause
// parts_test.cpp — forward and decode kernel in parts of a fixed number of keys, small ones, so
// that a row has many: under every mask, each part complete, empty or cut.
#include "sim/fwd/configs.h"
#include "sim/fwd/decode_kit.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig small_parts(MaskKind mask, bool ragged, int consumers) {
  FwdConfig c = small(mask, ragged);
  c.accumulate.part_tiles = 2;
  c.scores.softmax.per_row = true;
  c.tile.consumer_wgs = consumers;
  return c;
}
constexpr DecodeConfig decode_parts(bool ragged, int rows) {
  DecodeConfig c = small_decode(ragged);
  c.part_tiles = 2;
  c.rows = rows;
  return rows < kWgRows ? c : wide(c, rows);
}

const bool added =
    (add_fwd<small_parts(MaskKind::kFull, false, 2)>(),
     add_fwd<small_parts(MaskKind::kCausal, false, 2)>(),
     add_fwd<small_parts(MaskKind::kCausal, true, 3)>(),
     add_fwd<small_parts(MaskKind::kWindow, true, 2)>(), add_decode<decode_parts(false, 16)>(),
     add_decode<decode_parts(true, 16)>(), add_decode<decode_parts(true, 64)>(), true);

verify::Config problem(MaskKind mask, int64_t queries, int64_t keys) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = 2;
  c.heads_q = 4, c.heads_kv = 2;
  c.seqlen_q = queries, c.seqlen_kv = keys;
  c.mask = mask == MaskKind::kFull     ? FA3_MASK_FULL
           : mask == MaskKind::kCausal ? FA3_MASK_CAUSAL
                                       : FA3_MASK_WINDOW;
  c.left = mask == MaskKind::kWindow ? 90 : 0;
  c.right = mask == MaskKind::kWindow ? 3 : 0;
  c.alignment = 16;
  c.magnitude = 4;
  return c;
}
void expect_right(KernelRun& run) {
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
}

void expect_right_fwd(const verify::Config& c, const FwdConfig& config) {
  TestRuntime runtime;
  FwdRun run(runtime, c, config);
  expect_right(run);
}
// Keys: less than a part, exactly two, and several with a cut one at the end.
TEST(SimFwdParts, OfAnyNumber) {
  for (const int64_t keys : {40, 128, 300}) {
    expect_right_fwd(problem(MaskKind::kFull, 130, keys), small_parts(MaskKind::kFull, false, 2));
    expect_right_fwd(problem(MaskKind::kCausal, 200, keys),
                     small_parts(MaskKind::kCausal, false, 2));
  }
}
TEST(SimFwdParts, OfEachSequence) {
  verify::Config c = problem(MaskKind::kCausal, 260, 260);
  c.varlen_q = {200, 0, 5, 55}, c.varlen_kv = {260, 7, 129, 0};
  expect_right_fwd(c, small_parts(MaskKind::kCausal, true, 3));
  c.mask = FA3_MASK_WINDOW, c.left = 70, c.right = 2;
  expect_right_fwd(c, small_parts(MaskKind::kWindow, true, 2));
}

void expect_right_decode(const verify::Config& c, const DecodeConfig& config) {
  for (const int sms : {1, 3, 40}) {
    TestRuntime runtime;
    DecodeRun run(runtime, c, config, sms);
    expect_right(run);
  }
}
TEST(SimDecodeParts, OfAnyNumber) {
  for (const int64_t keys : {100, 256, 700}) {
    expect_right_decode(problem(MaskKind::kFull, 1, keys), decode_parts(false, 16));
    expect_right_decode(problem(MaskKind::kCausal, 5, keys), decode_parts(false, 16));
  }
}
TEST(SimDecodeParts, OfEachSequence) {
  verify::Config c = problem(MaskKind::kWindow, 3, 600);
  c.batch = 5;
  c.seqused_kv = {600, 0, 128, 129, 1};
  expect_right_decode(c, decode_parts(true, 16));
  c.mask = FA3_MASK_CAUSAL, c.left = c.right = 0;
  c.seqlen_q = 40;  // several tiles of packed rows
  expect_right_decode(c, decode_parts(true, 64));
}

}  // namespace
}  // namespace fa3::sim
