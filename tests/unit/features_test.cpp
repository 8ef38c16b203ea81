// SPDX-License-Identifier: BSD-3-Clause
// features_test.cpp — what Hopper's kernels declare to take is what they are planned for, and the
// guide's table is that of the declaration.
#include "plan/sm90/features.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "plan/sm90/kernels.h"
#include "tests/kit/golden_kit.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;

fa3_dtype dtype_of(Feature f) {
  switch (f) {
    case Feature::kF32:
      return FA3_F32;
    case Feature::kF16:
      return FA3_F16;
    case Feature::kE4m3:
      return FA3_F8_E4M3;
    case Feature::kI8:
      return FA3_I8;
    default:
      return FA3_BF16;
  }
}

Problem plain(fa3_op op, fa3_dtype dtype) {
  Problem p = problem(64, 64);
  p.op = op;
  p.heads_kv = p.heads_q;
  const bool is_8_bit = dtype == FA3_F8_E4M3 || dtype == FA3_I8;
  const fa3_dtype o = is_8_bit ? FA3_BF16 : dtype;
  p.layout[kQ] = p.layout[kK] = dense(dtype, 300, 4, 64);
  p.layout[kV] = dense(dtype == FA3_I8 ? FA3_F8_E4M3 : dtype, 300, 4, 64);
  p.layout[kO] = dense(o, 300, 4, 64);
  p.layout[kLse] = {};
  if (op == FA3_OP_FORWARD) return p;
  p.layout[kLse] = {FA3_F32, 1200, 1, 300};
  for (const TensorId id : {kDout, kDq, kDk, kDv}) p.layout[id] = p.layout[kO];
  return p;
}

// The problem with one feature more.
Problem with(Problem p, Feature f) {
  switch (f) {
    case Feature::kCausal:
      p.mask = FA3_MASK_CAUSAL;
      break;
    case Feature::kWindow:
      p.mask = FA3_MASK_WINDOW, p.left = p.right = 20;
      break;
    case Feature::kTopLeft:
      p.mask = FA3_MASK_CAUSAL, p.top_left = true;
      break;
    case Feature::kPages:
      p.kv.seqused = true;
      p.cache = {.entries = 40, .page_size = 10, .max_pages = p.kv.rows / 10};
      break;
    case Feature::kKvSlots:
      p.cache = {.entries = 9, .slots = true};
      break;
    case Feature::kKvBegin:
      p.kv.seqused = true;
      p.cache.begins = true;
      break;
    case Feature::kVarlen:
      p.q.varlen = p.kv.varlen = true;
      break;
    case Feature::kSeqused:
      p.kv.seqused = true;
      break;
    case Feature::kGroups:
      p.heads_kv = 2;
      break;
    case Feature::kSoftcap:
      p.softcap = 20;
      break;
    case Feature::kNegativeScale:
      p.softmax_scale = -0.1;
      break;
    case Feature::kAlibi:
      p.layout[kAlibiSlopes] = {FA3_F32, 0, 0, 1};
      break;
    case Feature::kSequenceIds:
      p.layout[kSequenceIdsQ] = p.layout[kSequenceIdsKv] = {FA3_I32, 300, 1, 0};
      break;
    case Feature::kBoolMask:
      p.layout[kAttnMask] = {FA3_BOOL, 0, 300, 0, 1};
      break;
    case Feature::kMaskGradient:
      p.mask_grad = {1, 1, 300, 300};
      p.layout[kDattnMask] = {FA3_F32, 0, 300, 0, 1};
      [[fallthrough]];
    case Feature::kAddedMask:
      p.layout[kAttnMask] = {FA3_F32, 0, 300, 0, 1};
      break;
    case Feature::kSinkGradient:
      p.layout[kDsinks] = {FA3_F32, 0, 0, 1};
      [[fallthrough]];
    case Feature::kSinks:
      p.layout[kSinks] = {FA3_BF16, 0, 0, 1};
      break;
    case Feature::kLse:
      p.layout[kLse] = {FA3_F32, 1200, 1, 300};
      break;
    case Feature::kF32Outputs:
      p.layout[p.op == FA3_OP_FORWARD ? kO : kDk].dtype = FA3_F32;
      break;
    case Feature::kDeterministic:
      p.deterministic = true;
      break;
    case Feature::kChunk:
      p.attention_chunk = 50;
      break;
    case Feature::kTree:
      p.q.rows = p.q.max_seqlen = 20;
      p.layout[kTreeMask] = {FA3_I32, 40, 2, 0};
      break;
    case Feature::kE4m3Keys:
      p.layout[kK].dtype = p.layout[kV].dtype = FA3_F8_E4M3;
      break;
    case Feature::kMaxLogit:
      p.layout[kMaxLogit] = {FA3_F32, 0, 0, 1};
      break;
    case Feature::kBatchInvariant:
      p.batch_invariant = 1;
      break;
    case Feature::kRotary:
      p.rotation.rotary_dim = 32, p.rotation.positions = 400;
      p.layout[kRotaryCos] = p.layout[kRotarySin] = {FA3_F32, 0, 16, 0};
      [[fallthrough]];
    case Feature::kAppend:
      p.kv.seqused = true;
      p.fresh = {.rows = 2, .max_seqlen = 2};
      for (const TensorId id : {kKNew, kVNew}) p.layout[id] = p.layout[kK];
      break;
    default:
      break;
  }
  return p;
}

// Whether the operation has the feature at all.
bool applies(fa3_op op, Feature type, Feature f) {
  if (f == Feature::kE4m3Keys)
    return op == FA3_OP_FORWARD && type != Feature::kE4m3 && type != Feature::kI8;
  const bool of_cache = f == Feature::kPages || f == Feature::kKvSlots || f == Feature::kKvBegin ||
                        f == Feature::kAppend || f == Feature::kRotary;
  const bool of_forward = f == Feature::kLse || f == Feature::kBatchInvariant || of_cache ||
                          f == Feature::kTree || f == Feature::kMaxLogit;
  if (of_forward) return op == FA3_OP_FORWARD;
  const bool of_backward =
      f == Feature::kMaskGradient || f == Feature::kSinkGradient || f == Feature::kDeterministic;
  if (of_backward) return op == FA3_OP_BACKWARD;
  return true;
}

TEST(Features, Declared_IsPlannedAndNothingElse) {
  for (const KernelFeatures& kernel : kKernelFeatures) {
    for (const Feature type : kTypeFeatures.list()) {
      for (int i = 0; i < kFeatureCount; ++i) {
        const auto f = static_cast<Feature>(i);
        if (kTypeFeatures.has(f) || !applies(kernel.op, type, f) || !kernel.takes.has(type))
          continue;
        SCOPED_TRACE(testing::Message()
                     << kernel.name << ", type " << static_cast<int>(type) << ", feature " << i);
        const Problem p = with(plain(kernel.op, dtype_of(type)), f);
        EXPECT_TRUE(features_of(p).has(f));
        const auto plan = plan_kernels(p, device());
        const auto takes = [&](const KernelFeatures& k) {
          return k.op == kernel.op && k.takes.has(type) && k.takes.has(f);
        };
        EXPECT_EQ(plan.ok(), std::ranges::any_of(kKernelFeatures, takes)) << plan.status().message;
        if (!plan.ok()) {
          EXPECT_EQ(plan.status().code, FA3_UNSUPPORTED);
        }
      }
    }
  }
}

TEST(Features, Refusal_NamesTheDifference) {
  const auto message = [](const Problem& p) { return check_features(p).message; };
  EXPECT_EQ(message(plain(FA3_OP_BACKWARD, FA3_I8)),
            "backward: dtype i8 on sm90 (backends cuda and sim), need f16 or bf16; convert, or use "
            "backend cpu");
  const Problem masked = with(plain(FA3_OP_FORWARD, FA3_I8), Feature::kBoolMask);
  EXPECT_THAT(message(masked), HasSubstr("forward: attn_mask with q of i8 on sm90"));
  EXPECT_THAT(message(masked), HasSubstr("need f16 or bf16; leave the tensors in 16 bits"));
  const Problem both = with(masked, Feature::kTopLeft);
  EXPECT_THAT(message(both), HasSubstr("or cu_seqlens and attn_mask with q of i8"));
  EXPECT_THAT(message(both), HasSubstr("which no kernel takes"));
  const Problem coded = with(plain(FA3_OP_FORWARD, FA3_F8_E4M3), Feature::kBatchInvariant);
  EXPECT_THAT(message(coded), HasSubstr("batch_invariant with q of f8_e4m3 on sm90"));
  EXPECT_THAT(message(coded), HasSubstr("need f16 or bf16; leave it out, or use backend cpu"));
  // Each by itself has a kernel.
  const Problem invariant = with(plain(FA3_OP_FORWARD, FA3_BF16), Feature::kBatchInvariant);
  const Problem of_mask = with(invariant, Feature::kAddedMask);
  EXPECT_THAT(message(of_mask), HasSubstr("batch_invariant with q of bf16 and attn_mask on sm90"));
  EXPECT_THAT(message(of_mask), HasSubstr("which no kernel takes; leave it out, or use backend"));
  EXPECT_FALSE(plan_kernels(of_mask, device()).ok());
}

TEST(Features, SupportTable_IsThatOfTheGuide) {
  kit::Lines lines = support_table(kKernelFeatures);
  lines.insert(lines.begin(), {"# What the kernels of Hopper take", "",
                               "Made by `ctest -R Features.SupportTable` from "
                               "`src/plan/sm90/features.h`, which refusals are made of, too.",
                               ""});
  kit::expect_file(std::filesystem::path(FA3_GOLDEN_DIR) / "../../docs/guide/support.md", lines);
}

}  // namespace
}  // namespace fa3::sm90
