// SPDX-License-Identifier: BSD-3-Clause
// fwd_plan_test.cpp — what the forward kernel of Hopper declines and with which message, which row
// of its table a problem gets, and masks reduced to the simplest form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/sm90/ahead.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/fwd/rows.h"
#include "plan/sm90/tensor_limits.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;

FwdPlan plan_of(const Problem& p, decltype(&make_fwd_plan) make = &make_fwd_plan) {
  const Result<FwdPlan> plan = make(p, device());
  EXPECT_TRUE(plan.ok()) << plan.status().message;
  return plan.ok() ? plan.value() : FwdPlan{};
}

void expect_declined(const Problem& p, const std::vector<std::string>& parts) {
  const Result<FwdPlan> plan = make_fwd_plan(p, device());
  ASSERT_FALSE(plan.ok()) << testing::PrintToString(parts);
  EXPECT_EQ(plan.status().code, FA3_UNSUPPORTED);
  for (const std::string& part : parts) EXPECT_THAT(plan.status().message, HasSubstr(part));
}

TEST(FwdPlan, Types_DeclinedByName) {
  Problem p = problem();
  p.layout[kQ].dtype = FA3_F32;
  expect_declined(p, {"forward", "dtype", "f32", "bf16"});
  p = problem();
  p.layout[kO].dtype = FA3_F32;
  EXPECT_TRUE(plan_of(p).config.output.f32);
}

// Scores are in the units of the converted slopes, and a kernel that is compiled ahead has both
// functors.
TEST(FwdPlan, SlopesAndIds_AreFunctors) {
  Problem p = problem();
  p.layout[kAlibiSlopes] = {FA3_F32, 0, 0, 1};
  FwdPlan plan = plan_of(p);
  EXPECT_EQ(plan.functors, (FwdFunctors{true, false}));
  EXPECT_EQ(plan.config.scores.kind, ScoreKind::kScaled);
  EXPECT_FLOAT_EQ(plan.slope_factor, 1.442695041f);
  EXPECT_FLOAT_EQ(plan.score_factor * plan.scale_log2,
                  static_cast<float>(p.softmax_scale) * plan.slope_factor);
  EXPECT_THAT(program_of(plan).expression, testing::EndsWith(", fa3::AlibiScore, fa3::EveryKey>"));
  p.softcap = 20;
  plan = plan_of(p);
  EXPECT_EQ(plan.config.scores.kind, ScoreKind::kSoftcap);
  EXPECT_FLOAT_EQ(plan.slope_factor * plan.scale_log2, 1.442695041f);
  p = problem();
  p.layout[kSequenceIdsQ] = p.layout[kSequenceIdsKv] = {FA3_I32, 300, 1, 0};
  plan = plan_of(p);
  EXPECT_EQ(plan.functors, (FwdFunctors{false, true}));
  EXPECT_NE(plan.config.tile.consumer_wgs, 3);
  const auto ahead = ahead_fwd_plan(p, device());
  ASSERT_TRUE(ahead.ok()) << ahead.status().message;
  EXPECT_EQ(ahead.value().functors, (FwdFunctors{true, true}));
  EXPECT_EQ(ahead.value().config.scores.kind, ScoreKind::kScaled);
  EXPECT_FLOAT_EQ(ahead.value().score_factor,
                  static_cast<float>(p.softmax_scale) * ahead.value().slope_factor);
}

TEST(FwdPlan, HeadDims_DeclinedByName) {
  expect_declined(problem(12, 64), {"head_dim_qk=12", "multiple of 8", "256"});
  expect_declined(problem(64, 12), {"head_dim_v=12"});
  expect_declined(problem(264, 64), {"head_dim_qk=264"});
  expect_declined(problem(64, 264), {"head_dim_v=264"});
}

TEST(FwdPlan, Strides_DeclinedByTensorAndDimension) {
  const std::pair<TensorId, const char*> tensors[] = {
      {kQ, "q: "}, {kK, "k: "}, {kV, "v: "}, {kO, "o: "}};
  for (const auto& [id, name] : tensors) {
    Problem p = problem();
    p.layout[id].row += 4;
    expect_declined(p, {name, "row stride", std::to_string(p.layout[id].row), "multiple of 8"});
    p = problem();
    p.layout[id].head += 1;
    expect_declined(p, {name, "head stride"});
    p = problem();
    p.layout[id].batch += 12;
    expect_declined(p, {name, "batch stride"});
    p = problem();
    p.layout[id].row = int64_t{1} << 39;
    expect_declined(p, {name, "row stride"});
  }
}

// A stride that no element uses may be anything.
TEST(FwdPlan, StridesOfOne_DoNotMatter) {
  Problem p = problem(64, 64, 1, 1);
  p.batch = p.heads_q = p.heads_kv = 1;
  for (const TensorId id : {kQ, kK, kV, kO}) {
    p.layout[id].batch = p.layout[id].row = p.layout[id].head = 7;
  }
  plan_of(p);
}

TEST(FwdPlan, Seqused_NeedsBatchStridesOfWholeRows) {
  Problem p = problem();
  p.kv.seqused = true;
  plan_of(p);
  p.layout[kV].batch += 8;
  expect_declined(p, {"v: ", "batch stride", "seqused"});
}

// Rows next to each other are those of different sequences.
void put_sequences_side_by_side(Problem& p) {
  for (const TensorId id : {kQ, kK, kV, kO}) {
    p.layout[id].batch = p.layout[id].row;
    p.layout[id].row *= p.batch;
  }
}

// Sequences of equal lengths may lie anywhere, also where the simulator's kernel is one for ragged
// tensors.
TEST(FwdPlan, Dense_AnyBatchStride) {
  Problem p = problem();
  put_sequences_side_by_side(p);
  for (const auto make : {&make_fwd_plan, &ahead_fwd_plan}) {
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
      for (const fa3_dtype dtype : {FA3_BF16, FA3_F16}) {
        p.mask = mask;
        for (const TensorId id : {kQ, kK, kV, kO}) p.layout[id].dtype = dtype;
        p.softcap = 0, p.softmax_scale = 0.1;
        plan_of(p, make);
        p.softmax_scale = -0.1;
        plan_of(p, make);
        p.softcap = 5;
        plan_of(p, make);
        Problem expanded = p;  // the same keys for all sequences, values of their own
        expanded.layout[kK].batch = 0;
        plan_of(expanded, make);
      }
    }
  }
  p.kv.seqused = true;
  expect_declined(p, {"q: ", "batch stride", "varlen or seqused"});
}

// Nothing lies between sequences without rows, or between the rows of one key for all.
TEST(FwdPlan, SequsedOfNothing_HasNoBatchStride) {
  Problem p = problem(128, 128, 300, 0);
  p.kv.seqused = true;
  for (const TensorId id : {kK, kV}) p.layout[id].batch = p.layout[id].row = 0;
  plan_of(p);
  p = problem(128, 128, 300, 1);
  p.kv.seqused = true;
  for (const TensorId id : {kK, kV}) p.layout[id].batch = p.layout[id].row = 0;
  plan_of(p);
}

TEST(FwdPlan, Rows_DeclinedBeyondCoordinates) {
  Problem p = problem(8, 8, 300, int64_t{1} << 30);
  expect_declined(p, {"1073741824 rows of key", "use backend cpu"});
  p.kv.varlen = true;
  expect_declined(p, {"1073741824 rows of key", "split the batch"});
}

// Ragged tensors are addressed by rows over all sequences; a sequence of one row is a row.
TEST(FwdPlan, RaggedRows_AreCountedOverSequences) {
  Problem p = problem(128, 128, 1, 300);
  p.kv.seqused = true;
  EXPECT_TRUE(plan_of(p).config.load.ragged);
  EXPECT_EQ(ragged_row_stride(p.q, p.layout[kQ]), 4 * 128);
  EXPECT_EQ(ragged_batch_rows(p, p.q, p.layout[kQ]), 1);
  EXPECT_EQ(ragged_row_stride(p.kv, p.layout[kK]), 2 * 128);
  EXPECT_EQ(ragged_batch_rows(p, p.kv, p.layout[kK]), 300);
  p.layout[kV].batch *= 2;
  expect_declined(p, {"key", "300", "600"});
}

std::string row_of(int64_t d_qk, int64_t d_v, int64_t seqlen_q, fa3_mask mask, int64_t heads) {
  Problem p = problem(d_qk, d_v, seqlen_q);
  p.mask = mask;
  p.left = 100;
  p.batch = 1;
  p.heads_q = p.heads_kv = heads;
  return plan_of(p).row;
}

TEST(FwdPlan, Rows_AreThoseOfTheTable) {
  struct Expected {
    int64_t d_qk, d_v, seqlen_q;
    const char *full, *causal, *window = nullptr;  // nullptr: as causal
  };
  const Expected all[] = {
      {64, 64, 64, "d64 few rows", "d64 few rows"},
      {64, 64, 192, "d64 full", "d64 masked"},
      {8, 64, 1, "d64 few rows", "d64 few rows"},
      {80, 80, 192, "d96 full", "d96 masked short"},
      {80, 80, 1025, "d96 full", "d96 masked"},
      {104, 104, 64, "d128 few rows", "d128 few rows"},
      {128, 128, 192, "d128 full", "d128 masked short"},
      {64, 128, 1025, "d128 full", "d128 causal", "d128 window"},
      {192, 128, 64, "d192 dv128", "d192 dv128"},
      {128, 128, 4097, "d128 full", "d128 causal long", "d128 window"},
      {192, 128, 1025, "d192 dv128", "d192 dv128 masked"},
      {192, 192, 2048, "d192 short", "d192 masked short"},
      {192, 192, 2049, "d192", "d192"},
      {128, 192, 2049, "d192", "d192"},
      {256, 256, 512, "d256", "d256"},
      {256, 256, 513, "d256", "d256"},
      {64, 256, 513, "d256", "d256"},
  };
  constexpr int64_t kMany = 10000;  // heads: enough to fill the GPU
  for (const Expected& e : all) {
    SCOPED_TRACE(testing::Message() << e.d_qk << "/" << e.d_v << " seqlen_q " << e.seqlen_q);
    EXPECT_EQ(row_of(e.d_qk, e.d_v, e.seqlen_q, FA3_MASK_FULL, kMany), e.full);
    EXPECT_EQ(row_of(e.d_qk, e.d_v, e.seqlen_q, FA3_MASK_CAUSAL, kMany), e.causal);
    const std::string window = row_of(e.d_qk, e.d_v, e.seqlen_q, FA3_MASK_WINDOW, kMany);
    EXPECT_EQ(window, e.window != nullptr ? e.window : e.causal);
  }
}

// Two waves of 132 tiles of 192 queries last as long as three of 128.
TEST(FwdPlan, ThreeConsumers_WhereTheirTilesFillTheGpu) {
  EXPECT_EQ(row_of(128, 128, 384, FA3_MASK_FULL, 132), "d128 full");  // 2 waves; 3 of 128
  EXPECT_EQ(row_of(128, 128, 384, FA3_MASK_FULL, 133), "d128");       // 3 waves; 4 of 128
  EXPECT_EQ(row_of(128, 128, 192, FA3_MASK_FULL, 132), "d128 full");  // 1 wave; 2 of 128
  EXPECT_EQ(row_of(128, 128, 128, FA3_MASK_FULL, 132), "d128");
  EXPECT_EQ(row_of(128, 128, 384, FA3_MASK_CAUSAL, 132), "d128 masked short");
  EXPECT_EQ(row_of(128, 128, 384, FA3_MASK_CAUSAL, 131), "d128");
  EXPECT_EQ(row_of(96, 96, 384, FA3_MASK_CAUSAL, 131), "d96");
  EXPECT_EQ(row_of(64, 64, 384, FA3_MASK_FULL, 1), "d64");
}

TEST(FwdPlan, ThreeConsumers_NotForTilesThatAreMostlyEmpty) {
  EXPECT_EQ(row_of(128, 128, 128, FA3_MASK_CAUSAL, 1000), "d128");
  EXPECT_EQ(row_of(128, 128, 256, FA3_MASK_CAUSAL, 1000), "d128");
  EXPECT_EQ(row_of(128, 128, 512, FA3_MASK_CAUSAL, 1000), "d128 masked short");
}

// Heads whose K and V fit two thirds of the L2 cache, in groups of equal size.
TEST(FwdPlan, HeadGroups_ByTheCache) {
  const auto group_of = [](Problem p) {
    p.mask = FA3_MASK_CAUSAL;
    DeviceInfo gpu = device();
    gpu.l2_bytes = 50 << 20;
    return make_fwd_plan(p, gpu).value().order.head_group;
  };
  Problem p = problem(128, 128, 4096, 4096);  // 2 MiB a head
  p.batch = 1;
  p.heads_q = p.heads_kv = 12;
  EXPECT_EQ(group_of(p), 12u);
  p.heads_q = p.heads_kv = 24;
  EXPECT_EQ(group_of(p), 12u);
  p.heads_q = 96;  // four query heads of a KV head
  EXPECT_EQ(group_of(p), 48u);
  p.heads_kv = 1;  // at least one
  p.heads_q = 128;
  EXPECT_EQ(group_of(p), 128u);
  p.heads_kv = 4;
  p.heads_q = 0;
  EXPECT_EQ(group_of(p), 1u);
}

TEST(FwdPlan, Functors_TakeTwoConsumers) {
  for (const int64_t d : {64, 96, 128}) {
    Problem p = problem(d, d, 4096);
    p.heads_q = p.heads_kv = 1000;
    EXPECT_EQ(plan_of(p).config.tile.consumer_wgs, 3) << d;
    p.layout[kAlibiSlopes] = {FA3_F32, 0, 1, 0};
    EXPECT_EQ(plan_of(p).config.tile.consumer_wgs, 2) << d;
  }
}

const std::string* why_not(const std::vector<RejectedRow>& rejected, const std::string& name) {
  for (const RejectedRow& row : rejected) {
    if (row.name == name) return &row.why;
  }
  return nullptr;
}

std::vector<RejectedRow> rejected(const Problem& p) {
  const FwdPlan plan = plan_of(p);
  return rejected_rows(plan.need, row_named(plan.row));
}

TEST(FwdPlan, RowsNotTaken_AllWithTheReason) {
  Problem p = problem(64, 96, 65);
  const FwdPlan plan = plan_of(p);
  EXPECT_STREQ(plan.row, "d96");
  const std::vector<RejectedRow> others = rejected(p);
  EXPECT_EQ(others.size(), std::size(kFwdRows) - 1);
  EXPECT_EQ(why_not(others, "d96"), nullptr);
  EXPECT_EQ(*why_not(others, "d64"), "head_dim_v up to 64, here 96");
  EXPECT_EQ(*why_not(others, "d128 few rows"),
            "up to 64 queries per sequence (varlen: twice the mean), here 65");
  EXPECT_THAT(*why_not(others, "d128"), HasSubstr("fits too"));
  EXPECT_THAT(*why_not(others, "d96 full"), HasSubstr("tiles of 192 queries"));

  p = problem(128, 64, 65);
  EXPECT_EQ(*why_not(rejected(p), "d64"), "head_dim_qk up to 64, here 128");
  p = problem(64, 64, 65);
  EXPECT_EQ(*why_not(rejected(p), "d64 masked"), "a mask, here full");
  p.mask = FA3_MASK_CAUSAL;
  EXPECT_EQ(*why_not(rejected(p), "d64 full"), "no mask, here causal");
  EXPECT_THAT(*why_not(rejected(p), "d128"), HasSubstr("fits too"));
}

// The table has a row for every problem that is not declined.
TEST(FwdPlan, NoRowFits_EveryOneSaysWhy) {
  const RowNeed need{257, 8, MaskKind::kFull, 1};
  EXPECT_EQ(choose_row(need), nullptr);
  EXPECT_EQ(rejected_rows(need, nullptr).size(), std::size(kFwdRows));
}

// Short ones by the longest sequence, which the caller may bound; others by twice the mean length.
TEST(FwdPlan, VarlenQueries_RowByLength) {
  Problem p = problem(128, 128, 300);
  p.q.varlen = true;
  p.q.max_seqlen = 64;
  const FwdPlan plan = plan_of(p);
  EXPECT_STREQ(plan.row, "d128 few rows");
  EXPECT_TRUE(plan.config.load.ragged);
  const auto row_of = [](int64_t sequences, int64_t mean, int64_t longest) -> std::string {
    Problem v = problem(128, 128, sequences * mean);
    v.q.varlen = true;
    v.q.max_seqlen = longest;
    v.batch = sequences;
    v.heads_q = v.heads_kv = 16;
    v.mask = FA3_MASK_CAUSAL;
    return plan_of(v).row;
  };
  EXPECT_EQ(row_of(64, 500, 32000), "d128 masked short");
  EXPECT_EQ(row_of(64, 520, 32000), "d128 causal");
  EXPECT_EQ(row_of(64, 2049, 32000), "d128 causal long");
  EXPECT_EQ(row_of(64, 2049, 4000), "d128 causal");
  EXPECT_EQ(row_of(2000, 2, 1000), "d128 masked short") << "not the row for 64 queries";
}

// Zeroing it costs 2 µs: not for tiles that all run at once, nor for short runs of equal tiles.
TEST(FwdPlan, Counter_WhereItPays) {
  const auto bytes_of = [](int64_t queries, int64_t keys, int64_t heads, fa3_mask mask) {
    Problem p = problem(128, 128, queries, keys);
    p.heads_q = p.heads_kv = heads;
    p.mask = mask;
    return kernel_bytes(plan_with(p, {plan_of(p)}));
  };
  EXPECT_EQ(bytes_of(1024, 1024, 1000, FA3_MASK_FULL), 4u);
  EXPECT_EQ(bytes_of(1024, 1024, 30, FA3_MASK_FULL), 0u);
  EXPECT_EQ(bytes_of(1024, 1024, 30, FA3_MASK_CAUSAL), 4u);
  EXPECT_EQ(bytes_of(64, 1 << 20, 32, FA3_MASK_FULL), 0u);
  EXPECT_EQ(bytes_of(64, 1 << 20, 32, FA3_MASK_CAUSAL), 0u);
}

TEST(FwdPlan, CompiledConfigs_AreLegalForEveryHeadDim) {
  for (int64_t d_qk = 8; d_qk <= 256; d_qk += 8) {
    for (int64_t d_v = 8; d_v <= 256; d_v += 8) {
      for (const int64_t seqlen_q : {64, 512, 513}) {
        const FwdConfig c = plan_of(problem(d_qk, d_v, seqlen_q)).config;
        ASSERT_EQ(why_illegal(c), nullptr) << d_qk << "/" << d_v << ": " << why_illegal(c);
        ASSERT_GE(c.tile.head_dim_qk, d_qk);
        ASSERT_GE(c.tile.head_dim_v, d_v);
      }
    }
  }
}

MaskKind mask_of(int64_t q, int64_t kv, fa3_mask mask, int64_t left = 0, int64_t right = 0) {
  Problem p = problem(128, 128, q, kv);
  p.mask = mask;
  p.left = left;
  p.right = right;
  return plan_of(p).config.mask.kind;
}

TEST(FwdPlan, Masks_AsSimpleAsTheyAre) {
  EXPECT_EQ(mask_of(300, 300, FA3_MASK_FULL), MaskKind::kFull);
  EXPECT_EQ(mask_of(300, 300, FA3_MASK_CAUSAL), MaskKind::kCausal);
  EXPECT_EQ(mask_of(2, 300, FA3_MASK_CAUSAL), MaskKind::kCausal);
  EXPECT_EQ(mask_of(1, 300, FA3_MASK_CAUSAL), MaskKind::kFull);
  EXPECT_EQ(mask_of(300, 300, FA3_MASK_WINDOW, -1, -1), MaskKind::kFull);
  EXPECT_EQ(mask_of(300, 200, FA3_MASK_WINDOW, 199, 299), MaskKind::kFull);
  EXPECT_EQ(mask_of(300, 200, FA3_MASK_WINDOW, 199, 298), MaskKind::kCausal);
  EXPECT_EQ(mask_of(300, 200, FA3_MASK_WINDOW, -1, 5), MaskKind::kCausal);
  EXPECT_EQ(mask_of(300, 200, FA3_MASK_WINDOW, 198, -1), MaskKind::kWindow);
  EXPECT_EQ(mask_of(300, 200, FA3_MASK_WINDOW, 0, 0), MaskKind::kWindow);
  EXPECT_EQ(mask_of(300, 300, FA3_MASK_WINDOW, int64_t{1} << 62, 0), MaskKind::kCausal);
}

TEST(FwdPlan, Scales_GoWhereTheyCostLeast) {
  Problem p = problem();
  EXPECT_EQ(plan_of(p).config.scores.kind, ScoreKind::kPlain);
  EXPECT_FLOAT_EQ(plan_of(p).scale_log2, 0.1f * 1.442695041f);
  p.softmax_scale = -0.1;
  EXPECT_EQ(plan_of(p).config.scores.kind, ScoreKind::kScaled);
  EXPECT_FLOAT_EQ(plan_of(p).score_factor, -0.1f * 1.442695041f);
  EXPECT_EQ(plan_of(p).scale_log2, 1);
  p.softcap = 20;
  EXPECT_EQ(plan_of(p).config.scores.kind, ScoreKind::kSoftcap);
  EXPECT_FLOAT_EQ(plan_of(p).score_factor, -0.1f / 20);
  EXPECT_FLOAT_EQ(plan_of(p).scale_log2, 20 * 1.442695041f);
}

// Masked scores are −inf: times 0 they would be NaN.
TEST(FwdPlan, TinyScales_StayAboveZero) {
  Problem p = problem();
  for (const double scale : {1e-300, 5e-324, 1e-45}) {
    p.softmax_scale = scale;
    EXPECT_GT(plan_of(p).scale_log2, 0) << scale;
  }
  p.softmax_scale = 1;
  p.softcap = 1e-300;
  EXPECT_GT(plan_of(p).scale_log2, 0);
}

TEST(FwdExpression, NamesEveryField) {
  const std::string text = fwd_expression(kFwdRows[0].config);
  EXPECT_THAT(text, testing::StartsWith("fa3::sm90::fwd<fa3::sm90::FwdConfig{.types = {.qk = "));
  // As many as there are: a structured binding names all fields of a struct.
  [[maybe_unused]] const auto& [types, tile, load, scores, mask, accumulate, output, overlap] =
      kFwdRows[0].config;
  [[maybe_unused]] const auto& [qk, v, o] = types;
  [[maybe_unused]] const auto& [head_dim_qk, head_dim_v, tile_kv, stages, consumer_wgs, q_stages] =
      tile;
  [[maybe_unused]] const auto& [ragged, kv, v_image, raw_v_stages] = load;
  [[maybe_unused]] const auto& [score, kv_scales, scale_columns, softmax] = scores;
  [[maybe_unused]] const auto& [lazy_rescale, test_first, p_log2, per_row, keeps_greatest] =
      softmax;
  [[maybe_unused]] const auto& [kind, tensor, mask_stages] = mask;
  [[maybe_unused]] const auto& [flush_columns, park_tiles, part_tiles] = accumulate;
  [[maybe_unused]] const auto& [f32, in_q, parts, max_logit] = output;
  [[maybe_unused]] const auto& [step, ping_pong, schedule, specialised] = overlap;
  EXPECT_EQ(std::count(text.begin(), text.end(), '.'), 8 + 3 + 6 + 4 + 4 + 5 + 3 + 3 + 4 + 4)
      << text;
}

// Two configurations that differ anywhere differ in their text, else a cache would mix them up.
TEST(FwdExpression, DifferentConfigurations_DifferentText) {
  for (const FwdRow& a : kFwdRows) {
    for (const FwdRow& b : kFwdRows) {
      EXPECT_EQ(fwd_expression(a.config) == fwd_expression(b.config), a.config == b.config)
          << a.name << ", " << b.name;
    }
  }
}

}  // namespace
}  // namespace fa3::sm90
