// SPDX-License-Identifier: BSD-3-Clause
// bwd_sm90_test.cpp — the backward kernels of Hopper, executed by the simulator: every row of their
// table over the shapes that tiles make awkward, judged by the FP64 reference.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kit/thorough.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Config;
using verify::Index;
using verify::Layout;

struct Kind {
  const char* name;
  std::function<void(Config&)> change;
};

// Of tiles of 64 or 128 queries and 128 keys.
const Kind kKinds[] = {
    {"Aligned", [](Config&) {}},
    {"OneMore", [](Config& c) { c.seqlen_q = 129, c.seqlen_kv = 257; }},
    {"OneFewer", [](Config& c) { c.seqlen_q = 127, c.seqlen_kv = 255; }},
    {"OneQueryOneKey", [](Config& c) { c.seqlen_q = c.seqlen_kv = 1; }},
    {"OneKvTile", [](Config& c) { c.seqlen_q = 300, c.seqlen_kv = 50; }},
    {"OneKvTileNotAllSee",
     [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.seqlen_q = 300, c.seqlen_kv = 50; }},
    {"NoQueries", [](Config& c) { c.seqlen_q = 0; }},
    {"NoKeys", [](Config& c) { c.seqlen_kv = 0; }},
    {"NoSequences", [](Config& c) { c.batch = 0; }},
    {"NoSequenceHasQueries",
     [](Config& c) {
       c.varlen_q = {0, 0}, c.varlen_kv = {130, 20};
       c.spare_kv = 5;
     }},
    {"NoHeads", [](Config& c) { c.heads_q = 0; }},
    {"Groups", [](Config& c) { c.heads_q = 4, c.heads_kv = 2, c.batch = 2, c.seqlen_q = 90; }},
    {"ManyHeads",  // most of whose sums of dQ the main kernel sets to 0
     [](Config& c) { c.heads_q = 4, c.heads_kv = 2, c.batch = 4, c.seqlen_q = 150; }},
    {"NarrowHeads", [](Config& c) { c.head_dim_qk -= 24, c.head_dim_v -= 8; }},
    {"Causal", [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.seqlen_q = c.seqlen_kv = 300; }},
    {"CausalMoreKeys",
     [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.seqlen_q = 140, c.seqlen_kv = 411; }},
    {"CausalMoreQueries",
     [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.seqlen_q = 411, c.seqlen_kv = 140; }},
    {"Window",
     [](Config& c) {
       c.mask = FA3_MASK_WINDOW, c.left = 70, c.right = 33;
       c.seqlen_q = 300, c.seqlen_kv = 420;
     }},
    {"WindowOfOne",
     [](Config& c) {
       c.mask = FA3_MASK_WINDOW, c.left = c.right = 0;
       c.seqlen_q = c.seqlen_kv = 260;
     }},
    {"Varlen",
     [](Config& c) {
       c.varlen_q = {200, 0, 1, 17, 130}, c.varlen_kv = {133, 3, 0, 256, 40};
       c.spare_q = 9, c.spare_kv = 300;
     }},
    {"VarlenCausal",
     [](Config& c) {
       c.varlen_q = {200, 5, 129}, c.varlen_kv = {133, 90, 256};
       c.mask = FA3_MASK_CAUSAL, c.heads_kv = 1;
     }},
    {"Seqused",
     [](Config& c) {
       c.batch = 3, c.seqused_q = {100, 0, 128}, c.seqused_kv = {1, 200, 256};
     }},
    {"SequsedVarlen",
     [](Config& c) {
       c.varlen_q = {70, 80}, c.varlen_kv = {200, 150};
       c.seqused_q = {69, 0}, c.seqused_kv = {150, 9};
     }},
    {"Padded", [](Config& c) { c.layout = Layout::kPadded; }},
    {"HeadsFirst", [](Config& c) { c.layout = Layout::kHeadsFirst, c.batch = 2; }},
    {"SeqFirst", [](Config& c) { c.layout = Layout::kSeqFirst, c.batch = 2; }},
    {"Broadcast", [](Config& c) { c.layout = Layout::kBroadcast, c.batch = 2; }},
    {"F16", [](Config& c) { c.dtype = FA3_F16, c.seqlen_kv = 200, c.mask = FA3_MASK_CAUSAL; }},
    {"NegativeScale", [](Config& c) { c.softmax_scale = -0.2; }},
    {"GradientOfLse", [](Config& c) { c.dlse = true; }},
    {"Softcap", [](Config& c) { c.softcap = 3, c.seqlen_q = 200, c.seqlen_kv = 150; }},
    {"SoftcapCausal",
     [](Config& c) {
       c.softcap = 20, c.magnitude = 10, c.mask = FA3_MASK_CAUSAL;
       c.varlen_q = {100, 30}, c.varlen_kv = {90, 140};
     }},
    {"Alibi",
     [](Config& c) {
       c.alibi = true, c.mask = FA3_MASK_CAUSAL;
       c.heads_q = 4, c.seqlen_q = 200, c.seqlen_kv = 260;
     }},
    {"SequenceIds",
     [](Config& c) { c.sequence_ids = 3, c.seqlen_q = 300, c.seqlen_kv = 270, c.batch = 2; }},
    {"AlibiAndIdsVarlen",
     [](Config& c) {
       c.alibi = true, c.sequence_ids = 2;
       c.varlen_q = {200, 0, 1, 130}, c.varlen_kv = {133, 3, 0, 240};
       c.seqused_q = {150, 0, 1, 130}, c.seqused_kv = {133, 2, 0, 200};
       c.mask = FA3_MASK_WINDOW, c.left = 90, c.right = 20;
     }},
    {"LargeScores", [](Config& c) { c.magnitude = 20; }},
    // LSE / scale, which is a term of S, is more than FP32 holds.
    {"TinyScale", [](Config& c) { c.softmax_scale = 1e-38; }},
    {"TinyNegativeScale", [](Config& c) { c.dtype = FA3_F16, c.softmax_scale = -1e-38; }},
};

class SimBwdSm90 : public testing::TestWithParam<size_t> {
 protected:
  static const Kind& kind() { return kKinds[GetParam()]; }
  // Deterministic, too: kinds that its own kernels may get wrong. With sanitizers these do without
  // the default.
  static bool also_deterministic() {
    static constexpr std::string_view kNames[] = {
        "OneMore",       "NoQueries",    "NoKeys",      "NoSequenceHasQueries", "Groups",
        "NarrowHeads",   "VarlenCausal", "Seqused",     "SequsedVarlen",        "Broadcast",
        "GradientOfLse", "Alibi",        "LargeScores", "CausalMoreQueries"};
    return std::ranges::count(kNames, kind().name) > 0;
  }
};

TEST_P(SimBwdSm90, IsRight) {
  for (size_t turn = GetParam(); const int64_t head_dim : {64, 128, 256}) {
    if (!kit::kSanitized && !kit::due(turn++, 3)) continue;
    SCOPED_TRACE(head_dim);
    Config c;
    c.dtype = FA3_BF16;
    c.backward = true;
    c.heads_q = c.heads_kv = 2;
    c.head_dim_qk = c.head_dim_v = head_dim;
    c.seqlen_q = 128, c.seqlen_kv = 256;
    c.alignment = 16;
    kind().change(c);
    const bool functors = c.alibi || c.sequence_ids > 0;
    if (head_dim == 256 && (functors || c.dtype == FA3_F16)) continue;  // not compiled in
    // Terms of scores take the row of head dim 128.
    if (kit::kSanitized && (head_dim != kit::kSanitizedHeadDim || c.softcap > 0 || functors))
      continue;
    const bool also = also_deterministic();
    if (!also || !kit::kSanitized) kit::expect_right(c, simulator());
    c.deterministic = true;
    if (also) kit::expect_right(c, simulator());
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, SimBwdSm90, testing::Range(size_t{0}, std::size(kKinds)),
                         [](const auto& kind) { return std::string(kKinds[kind.param].name); });

// Each output by itself is what it is beside the others.
TEST(SimBwdSm90Outputs, AnyMayBeAbsent) {
  Config c;
  c.dtype = FA3_BF16;
  c.backward = true;
  c.heads_q = c.heads_kv = 1;
  c.head_dim_qk = c.head_dim_v = 64;
  c.seqlen_q = 100, c.seqlen_kv = 150;
  c.alignment = 16;
  const verify::Tensors t = verify::make_tensors(c);
  const fa3_forward_args forward = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &forward, nullptr), FA3_OK) << fa3_last_error();
  for (int missing = 0; missing < 7; ++missing) {
    fa3_backward_args args = verify::backward_args(c, t);
    if ((missing & 1) != 0) args.dq = {};
    if ((missing & 2) != 0) args.dk = {};
    if ((missing & 4) != 0) args.dv = {};
    ASSERT_EQ(fa3_backward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    for (const verify::OutputResult& r : verify::compare_backward(args))
      EXPECT_TRUE(r.ok) << missing << ": " << verify::to_text(r);
  }
}

// O and gradients in FP32 beside dO of 16 bits.
TEST(SimBwdSm90Outputs, MayBeInF32) {
  for (const auto& [head_dim, head_dim_v] :
       {std::pair(64, 64), std::pair(128, 128), std::pair(128, 40), std::pair(256, 136)}) {
    if (kit::kSanitized && head_dim != kit::kSanitizedHeadDim) continue;
    Config c;
    c.dtype = FA3_BF16;
    c.backward = true;
    c.deterministic = head_dim_v != head_dim;
    c.heads_q = 2;
    c.head_dim_qk = head_dim, c.head_dim_v = head_dim_v;
    c.seqlen_q = 100, c.seqlen_kv = 150;
    c.alignment = 16;
    const verify::Tensors narrow = verify::make_tensors(c);
    c.out_dtype = FA3_F32;
    const verify::Tensors t = verify::make_tensors(c);
    const fa3_forward_args forward = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(simulator(), &forward, nullptr), FA3_OK) << fa3_last_error();
    fa3_backward_args args = verify::backward_args(c, t);
    args.dout = verify::backward_args(c, narrow).dout;
    ASSERT_EQ(args.dq.dtype, FA3_F32);
    ASSERT_EQ(fa3_backward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    for (const verify::OutputResult& r : verify::compare_backward(args))
      EXPECT_TRUE(r.ok) << verify::to_text(r);
  }
}

struct Declined {
  const char* name;
  std::function<void(Config&)> change;
  const char* says;
};
void PrintTo(const Declined& d, std::ostream* out) { *out << d.name; }

class SimBwdSm90Declined : public testing::TestWithParam<Declined> {};

TEST_P(SimBwdSm90Declined, NamesValueAndRemedy) {
  Config c;
  c.dtype = FA3_BF16;
  c.backward = true;
  c.heads_q = c.heads_kv = 1;
  c.head_dim_qk = c.head_dim_v = 64;
  c.seqlen_q = c.seqlen_kv = 64;
  c.alignment = 16;
  GetParam().change(c);
  const verify::Tensors t = verify::make_tensors(c);
  const fa3_backward_args args = verify::backward_args(c, t);
  fa3_plan* plan = nullptr;
  EXPECT_EQ(fa3_plan_backward(simulator(), &args, &plan), FA3_UNSUPPORTED);
  EXPECT_EQ(plan, nullptr);
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr(GetParam().says));
}
const Declined kDeclined[] = {
    {"F32", [](Config& c) { c.dtype = FA3_F32; }, "dtype f32"},
    {"HeadDim", [](Config& c) { c.head_dim_v = 264; }, "head_dim_v=264"},
    {"F16Wide", [](Config& c) { c.dtype = FA3_F16, c.head_dim_v = 136; }, "head_dim_v=136"},
    {"HeadDimUnit", [](Config& c) { c.head_dim_qk = 60; }, "head_dim_qk=60"},
    {"SmallSoftcap", [](Config& c) { c.softcap = 0.001; }, "softcap=0.001"},
    {"SoftcapF16", [](Config& c) { c.softcap = 3, c.dtype = FA3_F16; }, "with a softcap"},
    {"AlibiSoftcap", [](Config& c) { c.alibi = true, c.softcap = 3; }, "with a softcap"},
    {"GradientInF32", [](Config& c) { c.out_dtype = FA3_F32; }, "dout is f32"},
};
INSTANTIATE_TEST_SUITE_P(Calls, SimBwdSm90Declined, testing::ValuesIn(kDeclined),
                         [](const auto& d) { return std::string(d.param.name); });

}  // namespace
}  // namespace fa3
