// SPDX-License-Identifier: BSD-3-Clause
// fwd_functors_test.cpp — ALiBi and sequence ids in the Hopper kernel, simulated, through the C
// interface: judged by the FP64 reference, and which tiles are not even read.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using testing::HasSubstr;
using verify::Config;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Config config(int64_t head_dim) {
  Config c;
  c.dtype = FA3_BF16;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.alignment = 16;
  c.seqlen_q = 205;
  c.seqlen_kv = 333;
  return c;
}

struct Kind {
  const char* name;
  void (*change)(Config&);
};
const Kind kKinds[] = {
    {"Alibi", [](Config& c) { c.alibi = true; }},
    {"AlibiOfEachBatchEntry", [](Config& c) { c.alibi = true, c.batch = 3, c.seed = 2; }},
    {"AlibiCausalSoftcap",
     [](Config& c) { c.alibi = true, c.mask = FA3_MASK_CAUSAL, c.softcap = 7; }},
    {"AlibiNegativeScale", [](Config& c) { c.alibi = true, c.softmax_scale = -0.2; }},
    {"AlibiMoreQueries", [](Config& c) { c.alibi = true, c.seqlen_kv = 40; }},
    {"AlibiShortQueries", [](Config& c) { c.alibi = true, c.seqlen_q = 3; }},
    {"AlibiWindow",
     [](Config& c) { c.alibi = true, c.mask = FA3_MASK_WINDOW, c.left = 40, c.right = 90; }},
    {"Documents", [](Config& c) { c.sequence_ids = 5; }},
    {"DocumentsCausal", [](Config& c) { c.sequence_ids = 5, c.mask = FA3_MASK_CAUSAL; }},
    {"DocumentsWindow",
     [](Config& c) { c.sequence_ids = 2, c.mask = FA3_MASK_WINDOW, c.left = 100, c.right = 0; }},
    {"OneDocument", [](Config& c) { c.sequence_ids = 1, c.seqlen_kv = 800; }},  // unmasked tiles
    {"DocumentsSoftcap", [](Config& c) { c.sequence_ids = 3, c.softcap = 5; }},
    {"Scattered", [](Config& c) { c.sequence_ids = 3, c.scattered_ids = true; }},
    {"ScatteredShortQueries",
     [](Config& c) { c.sequence_ids = 9, c.scattered_ids = true, c.seqlen_q = 5; }},
    {"VarlenBoth",
     [](Config& c) {
       c.varlen_q = {150, 0, 17, 90}, c.varlen_kv = {200, 10, 0, 141};
       c.spare_q = c.spare_kv = 6;
       c.sequence_ids = 3;
       c.alibi = true;
       c.mask = FA3_MASK_CAUSAL;
     }},
    {"AlibiOfEachSequence",
     [](Config& c) {
       c.varlen_q = {70, 0, 17}, c.varlen_kv = {90, 10, 0};
       c.spare_q = 66;  // a tile of rows that no sequence has
       c.alibi = true, c.seed = 2;
     }},
    {"AlibiNoSequences",
     [](Config& c) {
       c.varlen_q = {0}, c.varlen_kv = {0};
       c.spare_q = c.spare_kv = 7;
       c.alibi = true;
     }},
    {"SequsedBoth",
     [](Config& c) {
       c.batch = 3;
       c.seqused_q = {205, 0, 33}, c.seqused_kv = {300, 40, 129};
       c.sequence_ids = 4;
       c.alibi = true;
     }},
};

class SimFwdFunctors : public testing::TestWithParam<size_t> {};

TEST_P(SimFwdFunctors, IsRight) {
  for (const int64_t head_dim : {64, 128}) {
    if (kit::kSanitized && head_dim != kit::kSanitizedHeadDim) continue;
    SCOPED_TRACE(head_dim);
    Config c = config(head_dim);
    kKinds[GetParam()].change(c);
    kit::expect_right(c, simulator());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SimFwdFunctors, testing::Range(size_t{0}, std::size(kKinds)),
                         [](const auto& info) { return std::string(kKinds[info.param].name); });

// Two documents, apart by more than a tile: NaN in one reaches nothing of the other, in K nor in V.
TEST(SimFwdSequenceIds, TilesOfOtherDocuments_AreNotRead) {
  Config c = config(64);
  c.heads_q = c.heads_kv = 1;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 512;
  c.sequence_ids = 2;
  const verify::Tensors t = verify::make_tensors(c);
  for (int64_t i = 0; i < 512; ++i) {
    verify::set(t.sequence_ids_q.view, {0, i}, i < 256 ? 7 : -3);
    verify::set(t.sequence_ids_kv.view, {0, i}, i < 256 ? 7 : -3);
    if (i < 256) continue;
    for (int64_t d = 0; d < 64; ++d) {
      verify::set(t.k.view, {0, i, 0, d}, kNan);
      verify::set(t.v.view, {0, i, 0, d}, kNan);
    }
  }
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  for (int64_t i = 0; i < 512; ++i) {
    for (int64_t d = 0; d < 64; ++d)
      ASSERT_EQ(std::isnan(verify::get(t.o.view, {0, i, 0, d})), i >= 256) << i << ", " << d;
  }
}

// Queries of a document without keys, next to others in the same tile.
TEST(SimFwdSequenceIds, RowsWithoutKeys_AreEmpty) {
  Config c = config(64);
  c.sequence_ids = 2;
  const verify::Tensors t = verify::make_tensors(c);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t i = 10; i < 20; ++i) verify::set(t.sequence_ids_q.view, {b, i}, 1000);
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_forward(args))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
  EXPECT_EQ(verify::get(t.o.view, {0, 15, 1, 3}), 0);
  EXPECT_EQ(verify::get(t.lse.view, {0, 1, 15}), -std::numeric_limits<double>::infinity());
}

TEST(SimFwdFunctorsRefusals, NameTheTensorAndTheReason) {
  Config c = config(96);
  c.alibi = true;
  EXPECT_THAT(verify::check(c, simulator()).error,
              testing::AllOf(HasSubstr("alibi_slopes"), HasSubstr("simulator")));
  c = config(64);
  c.dtype = FA3_F16;
  c.sequence_ids = 2;
  EXPECT_THAT(verify::check(c, simulator()).error, HasSubstr("sequence_ids_q"));
}

}  // namespace
}  // namespace fa3
